"""The paper's theory as functions, with no model around it.

``rates``: coding rates and their gradients. ``mixture``: the Gaussian codebook model. ``diffusion``: processes, their
time reversals and flows. ``theorems`` and ``concentration``: the main theorem and its lemmas. ``equivalence``:
compression compared with denoising. ``completion``: matrix completion. ``checks`` tests the paper's claims with them,
and ``command`` runs all checks.

Matrices are as in the paper: tokens are columns, Z is d x N, and the subspaces are K bases of shape d x p.
"""
