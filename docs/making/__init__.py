"""What ``make docs`` does to the pages of this folder, which are plain Markdown, to make a site of them.

==============  ====================================================================================
``conf``        the settings of Sphinx
``contents``    the table of contents, taken from the README of each folder
``addresses``   the builder: which page has which address
``sources``     files of the repository that pages link to, as pages of their own
``commands``    what ``--help`` of each command prints
``stubs``       texts and signatures of compiled classes
``static``      colours, the home page, pictures that follow the choice of light and dark
==============  ====================================================================================
"""
