"""Programs and modules that run in processes of their own: the scripted `sampler`, the tool
(`sleeper`), the engine's `questions` and `policy`, and the `bare` loops."""
