"""The page in the browser: sliders, live pictures, one's own readings; all of it on this machine.

`choices` are what the sliders say, `model` turns them into numbers (and is all that computes),
`pictures`, `words` and `recipes` show those numbers, `page` puts them together, `uploads` fits
readings, and `server` answers the browser.
"""
