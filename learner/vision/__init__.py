"""Parts of a policy that reads images: placed images, pixels, the tower."""
