"""The types of answers, from which the OpenAPI document is made. The document shows their docstrings to users.

`positions` has the answers with ranks, `journal` those about journals, streams and profiles, `acts` those about acts of
operators, and `boards` all others. A type has exactly the fields that the caller receives, with times already as text
and decimals with their exact digits: so nothing can differ between the document and the answers. Begin with
`positions`, then read `boards`.
"""
