"""What a study costs: jobs, node-hours, wall time and disk, measured where it can be, modelled where not."""
