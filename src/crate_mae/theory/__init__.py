"""The paper's theory as functions, with no model around it.

``rates``: coding rates and their gradients. ``mixture``: the Gaussian codebook model. ``diffusion``: processes, their
reversals and flows. ``theorems``: the main theorem, its lemmas and concentration bounds. ``completion``: matrix
completion. ``checks`` measures the paper's claims with them, and ``command`` runs all checks.

Matrices are as in the paper: tokens are columns, Z is d x N, and the subspaces are K bases of shape d x p.
"""
