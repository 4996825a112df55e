"""Run-time diagnostics: memory, signs of life, deadlines. They watch a job and change nothing that it computes."""
