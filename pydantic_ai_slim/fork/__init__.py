"""The build of a fork: the released base, with the patches of a line applied.

The hook beside this folder is an adapter to it, and the series tool uses it too. Besides the standard library it needs
hatchling and what that requires. Read `build`, which has the whole of it in order, and then, as it calls them, `line`,
`folder`, `base`, `metadata`, `patches` and `package`.
"""
