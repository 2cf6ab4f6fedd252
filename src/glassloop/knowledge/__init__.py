"""Knowledge: files are loaded, split, indexed and searched. Loading needs `pip install 'glassloop[rag]'`."""
