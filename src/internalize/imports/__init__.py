"""Reading the logs of runs that another system made."""
