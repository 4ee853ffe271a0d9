git rebase --quiet --onto refs/series/base HEAD~2
