"""The product's version."""

from importlib.metadata import PackageNotFoundError, version


def version_of_product() -> str:
    """The installed version; "0" from a bare checkout."""
    try:
        return version("toolreef")
    except PackageNotFoundError:
        return "0"
