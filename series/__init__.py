"""The tool that handles the series: `python -m series VERB [LINE]`, one module per verb."""
