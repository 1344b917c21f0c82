from multiprocessing import get_context

__all__ = ["get_context"]
