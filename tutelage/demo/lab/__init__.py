"""The laboratory: experiments on the demonstration's world, each a folder of cells and a page about them.

`start` is the world they begin from; `experiment` runs the cells that are not done yet and writes the page; `climbing`
trains one policy; `measurements` are what its answers are worth, and how noisy its gradients are. An experiment is a
module of its own: its size says how large it is, `cells` what is to be run, and the page is a function of the data that
the cells left.
"""
