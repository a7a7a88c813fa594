"""One attempt's processes: started, supervised, limited, and found again after a restart."""
