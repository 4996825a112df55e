"""What a study leaves behind, as one folder that can be verified, loaded and published."""
