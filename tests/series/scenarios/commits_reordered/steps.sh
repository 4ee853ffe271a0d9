git reset --quiet --hard refs/series/base
git cherry-pick refs/series/applied refs/series/applied~2 refs/series/applied~1
