"""As the package itself, no good by another name: pytest may take it for the bindings' `cuda`."""

if __name__ != "numba.cuda":
    raise ImportError(f"imported as {__name__}")
