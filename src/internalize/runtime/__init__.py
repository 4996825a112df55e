"""Runtime: the processes that train and play, how they are placed, and how weights get from one to the other."""
