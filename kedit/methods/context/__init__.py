"""Editors that leave the model alone and put knowledge in view: the conditions of CROPE and the documents of K-Viscuit."""
