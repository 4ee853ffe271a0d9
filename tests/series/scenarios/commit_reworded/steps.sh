git commit --quiet --amend --message 'Add the number two

It is the last of the series.'
