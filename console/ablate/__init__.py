"""`toolwright ablate`: variations of one recipe with the same seeds, data and budget, in one table.

recipe -> ladder -> a run of each variation under each seed -> results
"""
