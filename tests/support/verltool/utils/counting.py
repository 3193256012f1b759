def words(text):
    return text.split()


def longest(text):
    return max(words(text), key=len)
