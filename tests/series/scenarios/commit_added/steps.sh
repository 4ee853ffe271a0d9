echo 3 > tests/three.txt
git add tests/three.txt
git commit --quiet --message 'Add three

It is one more.'
