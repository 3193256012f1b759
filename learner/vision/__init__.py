"""What a policy that reads images has beside its text: where they stand, pixels, the tower."""
