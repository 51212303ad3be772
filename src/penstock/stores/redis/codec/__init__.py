"""Every byte that stands in the server or goes there: records, events, arguments and answers.

Scripts name fields; `names.py` gives each name its position. Begin reading in `jobs.py`, then `events.py`.
"""
