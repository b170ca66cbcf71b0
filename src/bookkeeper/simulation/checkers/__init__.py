"""What must always hold, one small file each. A broken promise raises `history.Violation`."""
