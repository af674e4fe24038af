"""A grid of parameters becomes one stored, resumable dataset: on this machine or on a Dask cluster."""
