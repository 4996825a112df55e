"""The report: tables, figures and pictures of the workflow, made from metrics and episodes alone (no
torch)."""
