"""The web page: move a slider and watch theory answer. Heavy things are imported when a page is asked for."""
