"The embedded language and the worlds that can be listed in full."
