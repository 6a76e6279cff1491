"""Laboratory: experiments on the demonstration's world, each a folder of cells and a page about them.

`start` is their starting point; `experiment` runs unfinished cells and writes the page; `policy_training` trains one
policy; `measurements` are of completions and of the noise of gradients. Each experiment is a module: its size, its
`cells`, and its page as a function of the data of the cells.
"""
