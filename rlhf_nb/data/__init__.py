"From files to rows of tokens, and pairs kept on disk."
