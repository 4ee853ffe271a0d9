"""The verbs of the tool, one module each; what they share is beside this folder."""
