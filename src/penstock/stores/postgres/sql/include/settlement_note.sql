-- Appends a note of this settlement to those before it, of which the newest are kept: a repeated call is answered from them.
        right(settled || token || ':{move}:' || {state} || ' ', {settled_chars}) AS to_settled
