"""The laboratory: experiments on the demonstration's world, each a folder of cells and a page about them.

`start` is the world they begin from; `cells` runs what is not done yet; `climbing` trains one policy; `measuring` asks
what its answers are worth; `figures` and `page` draw and write. An experiment is a module of its own: `SIZES` says how
large it is, `experiment` what is to be run, and the page is a function of the data that the cells left.
"""
