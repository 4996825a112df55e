"""Running on a Slurm cluster: where jobs go, how they start on several nodes, what a site must offer."""
