"""What is looked at after a run: report.html and summary.json."""

from console.report.writing import Paths, write

__all__ = ["Paths", "write"]
