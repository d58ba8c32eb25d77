"Pictures and instruments: tables, ledgers, inspectors, a live board."
