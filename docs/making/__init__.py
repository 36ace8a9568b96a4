"""What ``make docs`` does to the pages of this folder, which are plain Markdown, to make a site of them.

==============  ====================================================================================
``conf``        the settings of Sphinx
``contents``    the table of contents, taken from the README of each folder, and the side bar, which folds it
``addresses``   the builder: which page has which address
``sources``     files of the repository that pages link to, as pages of their own
``commands``    what ``--help`` of each command prints
``stubs``       texts and signatures of compiled classes
``words``       what people search for, and the page that answers it; ``scorer.js`` ranks the answers
``llms``        ``llms.txt``: the table of contents and all pages, for programs that read Markdown
``templates``   a heading on the page of the search
``static``      colours, the home page, what the keyboard reaches, pictures that follow the choice of light and dark
==============  ====================================================================================
"""
