"""Everything that is not a story: arithmetic, word problems, colours and shapes, sorting, counting, small talk, facts.

A task returns an Exchange. Its keys name what it gives away: the sums it states, the list it sorts. A question is held back
from training by its keys, so that "12 + 30" in a word problem does not teach the held-back "30 + 12".
"""
from dataclasses import dataclass, field

from words import (ANIMALS, BOYS, COLOURS, DAYS, FOODS, GIRLS, GOODS, MONTHS, NUMBERS, PLAIN_WORDS, SHAPES, SIDES, SORTABLE, an,
                   invented, listing)


@dataclass
class Exchange:
    user: str
    answer: str
    kind: str
    keys: list = field(default_factory=list)
    weight: float = 1.0


def cap(s):
    return s[0].upper() + s[1:]


# --- arithmetic -------------------------------------------------------------------------------------------------------
WORD = {"+": ["plus", "and"], "-": ["minus"], "x": ["times"]}
SIGN = {"+": ["+"], "-": ["-"], "x": ["x", "x", "x", "*"]}
ASK_SUM = ["What is {}?", "What is {}?", "{} = ?", "{}", "Calculate {}.", "How much is {}?", "Compute {}.", "What does {} make?", "Can you tell me what {} is?",
           "{} =", "Please work out {}.", "Solve {}."]


def sum_key(a, op, b):
    return f"{a}{op}{b}" if op == "-" or a <= b else f"{b}{op}{a}"


def value(a, op, b):
    return a + b if op == "+" else a - b if op == "-" else a * b


def work(a, op, b):
    """The answer with its steps, and the keys of every sum it states. Products with two-digit factors go by tens and ones."""
    plain, keys = f"{a} {op} {b} = {value(a, op, b)}", [sum_key(a, op, b)]
    if op != "x" or (a < 10 and b < 10) or a % 10 == 0 and a <= 100 or b % 10 == 0 and b <= 100:
        return plain + ".", keys
    first, second = (a, b) if b >= 10 else (b, a)  # split the second factor
    tens, ones = second // 10 * 10, second % 10
    left, right = first * tens, first * ones
    keys += [sum_key(first, "x", tens), sum_key(first, "x", ones), sum_key(left, "+", right)]
    return f"{first} x {tens} = {left}, {first} x {ones} = {right}, {left} + {right} = {left + right}. So {plain}.", keys


def arithmetic(r):
    op = r.choice("+-x")
    if op == "x":
        a, b = r.choice(((r.randint(0, 12), r.randint(0, 12)), (r.randint(10, 99), r.randint(2, 9)), (r.randint(2, 9), r.randint(10, 99)),
                         (r.randint(10, 99), r.randint(10, 99)), (r.randint(10, 99), r.randint(10, 99))))
    else:
        a, b = r.randint(0, 99), r.randint(0, 99)
        if op == "-" and a < b and r.random() < 0.8:
            a, b = b, a
    said = r.choice(WORD[op]) if r.random() < 0.2 else r.choice(SIGN[op])
    ask = r.choice(ASK_SUM)
    gap = "" if r.random() < 0.1 and len(said) == 1 else " "
    answer, keys = work(a, op, b)
    return Exchange(ask.format(f"{a}{gap}{said}{gap}{b}"), answer, "arithmetic", keys)


def bigger_sum(r):
    """Sums as they come up inside products, and two that follow each other. For practice only: not among the questions held back."""
    if r.random() < 0.6:
        a, b = r.randint(10, 99) * r.randint(1, 9) * 10, r.randint(10, 99) * r.randint(1, 9)
        return Exchange(r.choice(ASK_SUM).format(f"{a} + {b}"), f"{a} + {b} = {a + b}.", "practice", [sum_key(a, "+", b)])
    a, b, c = r.randint(1, 60), r.randint(1, 60), r.randint(1, 60)
    d = a + b
    op = "-" if c <= d and r.random() < 0.5 else "+"
    return Exchange(r.choice(ASK_SUM).format(f"{a} + {b} {op} {c}"), f"{a} + {b} = {d}, {d} {op} {c} = {value(d, op, c)}.", "practice",
                    [sum_key(a, "+", b), sum_key(d, op, c)])


def compare(r):
    a, b = r.sample(range(100), 2)
    if r.random() < 0.5:
        return Exchange(r.choice(("Which number is bigger, {} or {}?", "What is larger: {} or {}?")).format(a, b), f"{max(a, b)} is bigger than {min(a, b)}.",
                        "practice", [f"max {a} {b}"])
    return Exchange(r.choice(("Which number is smaller, {} or {}?", "What is less: {} or {}?")).format(a, b), f"{min(a, b)} is smaller than {max(a, b)}.",
                    "practice", [f"min {a} {b}"])


def count_up(r):
    a = r.randint(0, 90)
    b = a + r.randint(2, 9)
    if r.random() < 0.7:
        return Exchange(r.choice(("Count from {} to {}.", "Please count from {} to {}.", "Can you count from {} to {}?")).format(a, b),
                        ", ".join(str(i) for i in range(a, b + 1)) + ".", "practice", [f"count {a} {b}"])
    return Exchange(f"What number comes after {a}?", f"{a + 1} comes after {a}.", "practice", [f"after {a}"])


def word_problem(r):
    pronoun = r.choice(("he", "she"))
    names = r.sample(GIRLS if pronoun == "she" else BOYS, 2)
    if r.random() < 0.1:
        names[0] = cap(invented(r))
    one = r.choice(list(GOODS))
    many, who, other = GOODS[one], names[0], r.choice([n for n in GIRLS + BOYS if n not in names])
    count = lambda n: f"{n} {one if n == 1 else many}"
    n = r.randint(2, 60)
    text, steps, keys, total = [r.choice(("{} has {}.", "{} had {}.")).format(who, count(n))], [], [], n
    for _ in range(r.choice((1, 1, 2))):
        step = r.choice("+-x") if not steps and total <= 12 else r.choice("+-")
        if step == "x":
            k = r.randint(2, 6)
            text = [f"{who} has {k} bags.", f"There are {count(total)} in each bag."]
            op, a, b = "x", k, total
        elif step == "+":
            k = r.randint(1, 40)
            text.append(r.choice((f"{other} gives {who} {k} more.", f"{cap(pronoun)} finds {k} more.", f"{cap(pronoun)} buys {k} more.", f"Then {who} gets {count(k)} from {other}.")))
            op, a, b = "+", total, k
        else:
            k = r.randint(1, total) if total else 0
            text.append(r.choice((f"{cap(pronoun)} gives {k} to {other}.", f"{cap(pronoun)} loses {k} of them.", f"{who} sells {k}.", f"{other} takes {k} away.")))
            op, a, b = "-", total, k
        total = value(a, op, b)
        steps.append(f"{a} {op} {b} = {total}")
        keys.append(sum_key(a, op, b))
    ask = r.choice((f"How many {many} does {who} have now?", f"How many {many} does {who} have?"))
    return Exchange(" ".join(text) + " " + ask, f"{', '.join(steps)}. {who} has {count(total)}.", "word_problem", keys + [" ".join(text)])


# --- colours and shapes -----------------------------------------------------------------------------------------------
def shapes(r):
    """A row of coloured shapes; no shape twice, colours may repeat."""
    n = r.randint(2, 6)
    row = [(r.choice(COLOURS[:r.choice((4, 13))]), s) for s in r.sample(SHAPES, n)]
    names = [f"{c} {s}" for c, s in row]
    told = r.choice(("From left to right there are {}.", "There is a row of shapes: {}.", "In the picture you see, from left to right, {}.",
                     "On the table lie {} in a row.")).format(listing([an(x) for x in names]))
    i = r.randrange(n)
    colour, shape = row[i]
    same = [s for c, s in row if c == colour]
    missing = r.choice([s for s in SHAPES if s not in [x for _, x in row]])
    asks = [(f"What colour is the {shape}?", f"The {shape} is {colour}."), (f"Which colour does the {shape} have?", f"The {shape} is {colour}."),
            ("How many shapes are there?", f"There {'is' if n == 1 else 'are'} {n} shapes."),
            (f"How many {colour} shapes are there?", f"There {'is' if len(same) == 1 else 'are'} {len(same)} {colour} shape{'s' if len(same) > 1 else ''}."),
            (f"Is there {an(names[i])}?", f"Yes, there is {an(names[i])}."), (f"Is there {an(colour + ' ' + missing)}?", f"No, there is no {colour} {missing}."),
            (f"What colour is the {missing}?", f"There is no {missing}."),
            ("Which shape is on the far left?", f"The {names[0]} is on the far left."), ("Which shape is on the far right?", f"The {names[-1]} is on the far right.")]
    if len(same) == 1:
        asks += [(f"Which shape is {colour}?", f"The {shape} is {colour}."), (f"What shape is {colour}?", f"The {shape} is {colour}.")]
    if i > 0:
        asks += [(f"Which shape is just left of the {shape}?", f"The {names[i - 1]} is just left of the {shape}.")] * 2
    if i < n - 1:
        asks += [(f"Which shape is just right of the {shape}?", f"The {names[i + 1]} is just right of the {shape}.")] * 2
    question, answer = r.choice(asks)
    return Exchange(f"{told} {question}", answer, "shapes", [f"{told} {question}"])


# --- words ------------------------------------------------------------------------------------------------------------
def sorting(r):
    if r.random() < 0.3:
        items = r.sample(range(100), r.randint(3, 6))
        down = r.random() < 0.4
        ask = r.choice(("Sort these numbers from {}: {}", "Put these numbers in order from {}: {}", "Order these numbers from {}: {}"))
        ends = r.choice(("large to small", "big to small", "highest to lowest") if down else ("small to large", "small to big", "lowest to highest"))
        return Exchange(ask.format(ends, ", ".join(map(str, items))), ", ".join(map(str, sorted(items, reverse=down))), "sorting",
                        ["sort " + " ".join(map(str, sorted(items)))])
    pool = r.choice((SORTABLE, SORTABLE, list(ANIMALS), list(FOODS)))
    items = r.sample(pool, r.randint(3, 5))
    ask = r.choice(("Sort these words: {}", "Put these words in alphabetical order: {}", "Sort these words from A to Z: {}", "Sort alphabetically: {}",
                    "Please sort these words: {}", "Sort this list: {}"))
    return Exchange(ask.format(", ".join(items)), ", ".join(sorted(items)), "sorting", ["sort " + " ".join(sorted(items))])


def numbered(items):
    return ", ".join(f"{x} ({i + 1})" for i, x in enumerate(items))


def there_are(n, one, many):
    return f"There {'is' if n == 1 else 'are'} {n} {one if n == 1 else many}."


def counting(r):
    dice = r.random()
    if dice < 0.45:
        items = r.choices(PLAIN_WORDS, k=r.randint(2, 10))
        ask = r.choice(("How many words are there: {}?", "Count the words: {}", "How many words are in \"{}\"?", "Count the words in \"{}\".", "How many words are in this line: {}"))
        return Exchange(ask.format(" ".join(items)), numbered(items) + ". " + there_are(len(items), "word", "words"), "counting", ["words " + " ".join(items)])
    if dice < 0.7:
        word, others = r.choice(SORTABLE), r.sample(SORTABLE, 3)
        items = [word if r.random() < 0.4 else r.choice(others) for _ in range(r.randint(3, 10))]
        n = items.count(word)
        ask = r.choice(("How many times does the word \"{}\" appear: {}?", "How often is the word \"{}\" in this list: {}?", "Count the word \"{}\" in: {}"))
        return Exchange(ask.format(word, " ".join(items)), (numbered([word] * n) + ". " if n else "") + f"The word appears {n} time{'' if n == 1 else 's'}.", "counting",
                        ["often " + word + " " + " ".join(items)])
    what, group = r.choice((("animals", list(ANIMALS)), ("foods", list(FOODS)), ("colours", COLOURS), ("shapes", SHAPES[:9])))
    other = [x for x in SORTABLE if not any(x in g for g in (ANIMALS, FOODS, COLOURS, SHAPES))]
    items = [r.choice(group) if r.random() < 0.5 else r.choice(other) for _ in range(r.randint(3, 8))]
    hits = [x for x in items if x in group]
    ask = r.choice(("How many {} are in this list: {}?", "Count the {}: {}", "How many {} do you see here: {}?"))
    return Exchange(ask.format(what, ", ".join(items)), (numbered(hits) + ". " if hits else "") + there_are(len(hits), what[:-1], what), "counting",
                    [what + " " + " ".join(items)])


def odd_words(r):
    """Sorting and counting with words that mean nothing, for users whose words were never seen."""
    items = [r.choice(PLAIN_WORDS) if r.random() < 0.4 else invented(r) for _ in range(r.randint(2, 6))]
    if r.random() < 0.4 and len({x[:2] for x in items}) == len(items):
        return Exchange("Sort these words: " + ", ".join(items), ", ".join(sorted(items)), "practice", ["sort " + " ".join(sorted(items))])
    return Exchange(f"How many words are in \"{' '.join(items)}\"?", numbered(items) + ". " + there_are(len(items), "word", "words"), "practice", ["words " + " ".join(items)])


def repeat(r):
    items = [r.choice((r.choice(PLAIN_WORDS), invented(r), cap(invented(r)), str(r.randint(0, 999)))) for _ in range(r.randint(1, 7))]
    text, end = " ".join(items), r.choice((".", "", "!"))
    pick = r.randrange(5)
    if pick < 3:
        return Exchange(r.choice(("Repeat after me: {}", "Say this: {}", "Repeat: {}", "Please say: {}", "Echo {}")).format(text + end), text + end, "practice")
    what, word = r.choice((("first", items[0]), ("last", items[-1])))
    return Exchange(f"What is the {what} word in \"{text}\"?", f"The {what} word is \"{word}\".", "practice")


def name_some(r):
    what, group = r.choice((("animals", list(ANIMALS)), ("foods", list(FOODS.values())), ("colours", COLOURS), ("shapes", SHAPES[:9]), ("days", DAYS), ("girls' names", GIRLS), ("boys' names", BOYS)))
    n = r.randint(2, 5)
    return Exchange(r.choice(("Name {} {}.", "Give me {} {}.", "Tell me {} {}.", "List {} {}.")).format(NUMBERS[n] if r.random() < 0.7 else n, what),
                    cap(listing(r.sample(group, n))) + ".", "talk", weight=0.3)


POEMS = ["The little {x} looked at the moon\nand hummed a very quiet tune.\nThe stars came out, the night was deep,\nand soon the {x} was fast asleep.",
         "I know {ax}, so {c} and bright,\nit dances in the morning light.\nAnd when the day is nearly done,\nit waves goodbye to the {c} sun.",
         "{Ax} went out to see the sea,\nand shared a cup of honey tea.\nThe wind was warm, the waves were slow.\n\"Good night\", it said, \"I have to go.\"",
         "Oh {x}, oh {x}, where do you roam?\nThe rain is falling, come back home.\nThe fire is warm, the soup is hot,\nand you are loved, and that's a lot."]


def poem(r):
    x = r.choice(SORTABLE) if r.random() < 0.9 else invented(r)
    text = r.choice(POEMS).format(x=x, ax=an(x), Ax=cap(an(x)), c=r.choice(("red", "gold", "green", "white")))
    ask = r.choice(("Write a poem about {}.", "Write a short poem about {}.", "A poem about {}, please.", "Can you write a poem about {}?", "Tell me a poem about {}.")).format(an(x))
    return Exchange(ask if r.random() < 0.85 else r.choice(("Write a poem.", "Tell me a poem.", "Do you know a poem?")), text, "talk", weight=0.35)


def spelling(r):
    word = r.choice(PLAIN_WORDS)
    if r.random() < 0.5:
        return Exchange(r.choice(("Spell the word {}.", "How do you spell {}?", "Please spell {}.")).format(word), "-".join(word) + ".", "practice", ["spell " + word])
    return Exchange(r.choice(("How many letters does the word {} have?", "How many letters are in {}?")).format(word),
                    numbered(word) + f". The word {word} has {len(word)} letter{'s' if len(word) > 1 else ''}.", "practice", ["letters " + word])


# --- small talk and facts ---------------------------------------------------------------------------------------------
ME = "I am ingot's small model"
HELP = "I can tell short stories, answer questions about them, do arithmetic with small numbers, sort and count words, and talk a little."
TALK = [
    (["Hello", "Hi", "Hey", "Hello!", "Hi!", "Hi there", "Hey there!", "Hello there.", "Good day", "Greetings"],
     ["Hello! How can I help you?", "Hi! Would you like a story?", "Hello! It is nice to meet you.", "Hi there! What shall we do?"]),
    (["Good morning", "Good morning!"], ["Good morning! How can I help you?"]),
    (["Good evening", "Good evening!"], ["Good evening! Would you like a story?"]),
    (["Good night", "Good night!", "I am going to bed."], ["Good night! Sleep well."]),
    (["How are you?", "How are you today?", "How do you do?", "How is it going?", "Are you well?"],
     ["I am well, thank you. How can I help you?", "I am fine, thank you. And you?"]),
    (["I am fine", "I am well, thanks", "I am good", "Very well, thank you."], ["I am glad to hear that. What shall we do?"]),
    (["Who are you?", "What are you?", "What is your name?", "Who am I talking to?", "Tell me about yourself.", "Introduce yourself.", "What's your name?", "who are you"],
     [f"{ME}. {HELP}"]),
    (["What can you do?", "How can you help me?", "What do you know?", "Help", "What are you good at?", "What should I ask you?"], [f"{ME}. {HELP}"]),
    (["Who made you?", "Who built you?", "Where do you come from?", "How were you made?"],
     [f"{ME}. I was trained in a few minutes on stories and exercises that a program wrote."]),
    (["Are you a human?", "Are you a person?", "Are you alive?", "Are you real?", "Are you a robot?", "Are you an AI?"], [f"I am a program. {ME}."]),
    (["How big are you?", "How many parameters do you have?", "Are you small?"], ["I have about seven million parameters. That is very small for a language model."]),
    (["What is ingot?", "Tell me about ingot.", "What does ingot do?"], ["Ingot is a program that runs language models on many devices. I am the small model that comes with it."]),
    (["Thank you", "Thanks", "Thank you!", "Thanks a lot!", "Thank you very much."], ["You are welcome!", "You are welcome. Is there anything else?"]),
    (["Bye", "Goodbye", "See you", "Bye!", "Goodbye!", "See you later."], ["Goodbye! Come back soon.", "Goodbye!"]),
    (["I am sad.", "I feel sad.", "I am lonely.", "I had a bad day."], ["I am sorry to hear that. Would you like a story to cheer you up?"]),
    (["I am happy.", "I am happy today!", "I had a good day."], ["That is wonderful! What made you happy?"]),
    (["I am bored.", "What shall we do?", "I do not know what to ask."], ["Ask me for a story about an animal, or give me a sum."]),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "A joke, please."],
     ["Why did the clock go to school? It wanted to learn how to tell time.", "What has hands but cannot clap? A clock.", "What gets wetter the more it dries? A towel.",
      "Why did the cookie see the doctor? It felt crumby.", "What has a neck but no head? A bottle."]),
    (["You are great!", "Well done!", "Good job!", "I like you.", "Very good!", "That was nice."], ["Thank you! That is kind of you."]),
    (["That is wrong.", "No, that is not right.", "You are wrong."], ["I am sorry. I am a very small model and make mistakes."]),
    (["Yes", "Yes, please.", "Okay", "Ok", "Sure"], ["What would you like: a story, a sum or a list to sort?"]),
    (["No", "No, thank you.", "Nothing."], ["All right. Tell me when you need something."]),
    (["Do you like animals?", "Do you like stories?", "What do you like?"], ["I like stories about animals. Shall I tell you one?"]),
    (["Sing a song.", "Can you sing?"], ["La la la! I sing better in stories than in songs."]),
    (["What time is it?", "What day is it today?", "What is the date?", "What is the weather like today?"], ["I do not know. I cannot see the world outside this text."]),
]
BEYOND = ["Who is the president of {}?", "Write a program in {}.", "Translate this into {}.", "Who won the {} last year?", "Explain {}.",
          "What do you think about {}?", "How do I fix my {}?", "Tell me the history of {}.", "What is the meaning of {}?", "Write an essay about {}.",
          "How far is {}?", "Where can I buy {}?", "What is the price of {}?", "Can you recommend {}?", "What is {}?", "How does {} work?"]
TOPICS = ["France", "Japan", "Python", "Brazil", "the stock market", "politics", "quantum physics", "football", "the internet", "my computer", "Germany", "the moon landing",
          "philosophy", "a new phone", "Spanish", "economics", "chess", "life", "the universe", "Rome", "electricity", "insurance", "cancer", "taxes", "the war", "China",
          "biology", "a good film", "JavaScript", "India", "democracy", "an engine", "gravity", "religion", "Shakespeare", "the world cup", "a car"]
BEYOND_ANSWER = f"I do not know that. {ME}. {HELP}"
COLOUR_OF = {"grass": "green", "the sky": "blue", "snow": "white", "blood": "red", "a lemon": "yellow", "coal": "black", "an elephant": "grey", "a carrot": "orange", "a cherry": "red",
             "milk": "white", "a banana": "yellow", "chocolate": "brown", "the sun": "yellow", "a flamingo": "pink", "a strawberry": "red", "the night": "black", "a frog": "green"}
MIX = {("blue", "yellow"): "green", ("red", "yellow"): "orange", ("red", "blue"): "purple", ("red", "white"): "pink", ("black", "white"): "grey"}
CAPITALS = dict(x.split("-") for x in """France-Paris Germany-Berlin Italy-Rome Spain-Madrid Portugal-Lisbon Austria-Vienna Greece-Athens Poland-Warsaw Norway-Oslo
Sweden-Stockholm Denmark-Copenhagen Finland-Helsinki Iceland-Reykjavik Ireland-Dublin England-London Scotland-Edinburgh Belgium-Brussels Hungary-Budapest Japan-Tokyo China-Beijing
India-Delhi Egypt-Cairo Kenya-Nairobi Canada-Ottawa Mexico-Mexico_City Cuba-Havana Peru-Lima Chile-Santiago Argentina-Buenos_Aires Brazil-Brasilia Australia-Canberra Turkey-Ankara
Russia-Moscow Ukraine-Kyiv Romania-Bucharest Bulgaria-Sofia Thailand-Bangkok Vietnam-Hanoi Korea-Seoul Morocco-Rabat""".replace("_", "~").split())
OPPOSITE = dict(x.split("-") for x in "hot-cold big-small fast-slow up-down happy-sad day-night old-new wet-dry hard-soft light-dark high-low left-right open-closed full-empty "
                "good-bad long-short loud-quiet early-late strong-weak thick-thin rich-poor clean-dirty near-far first-last black-white".split())
LEGS = {"a spider": 8, "a dog": 4, "a cat": 4, "a bird": 2, "an ant": 6, "a bee": 6, "a horse": 4, "a person": 2, "a snake": 0, "a fish": 0, "a cow": 4, "a hen": 2, "a beetle": 6}
SAYS = {"cow": "moo", "dog": "woof", "cat": "meow", "duck": "quack", "sheep": "baa", "pig": "oink", "rooster": "cock-a-doodle-doo", "bee": "buzz", "snake": "hiss", "lion": "roar",
        "owl": "hoot", "frog": "croak", "mouse": "squeak", "horse": "neigh"}
YOUNG = {"cat": "kitten", "dog": "puppy", "cow": "calf", "sheep": "lamb", "horse": "foal", "hen": "chick", "bear": "cub", "duck": "duckling", "goat": "kid", "deer": "fawn"}


def small_talk(r):
    asks, answers = r.choice(TALK)
    return Exchange(r.choice(asks), r.choice(answers), "talk", weight=0.5)


def beyond(r):
    topic = r.choice(TOPICS) if r.random() < 0.8 else r.choice((cap(invented(r)), invented(r)))
    return Exchange(r.choice(BEYOND).format(topic), BEYOND_ANSWER, "talk", weight=0.3)


def general(r):
    pick = r.randrange(10)
    if pick == 9:
        country = r.choice(list(CAPITALS))
        city = CAPITALS[country].replace("~", " ")
        if r.random() < 0.75:
            return Exchange(r.choice(("What is the capital of {}?", "Which city is the capital of {}?", "Tell me the capital of {}.")).format(country), f"The capital of {country} is {city}.", "general")
        return Exchange(f"{city} is the capital of which country?", f"{city} is the capital of {country}.", "general")
    if pick == 0:
        thing = r.choice(list(COLOUR_OF))
        return Exchange(f"What colour is {thing}?", f"{cap(thing)} is {COLOUR_OF[thing]}.", "general")
    if pick == 1:
        a, b = r.choice(list(MIX))
        c, (x, y) = MIX[a, b], r.sample((a, b), 2)
        return Exchange(r.choice((f"What do you get when you mix {x} and {y}?", f"Which colour do {x} and {y} make?", f"What colour is {x} and {y} mixed?")), f"{cap(a)} and {b} make {c}.", "general")
    if pick == 2:
        a = r.choice(list(OPPOSITE))
        a, b = r.choice(((a, OPPOSITE[a]), (OPPOSITE[a], a)))
        if a in ("black", "white"):
            a, b = "black", "white"
        return Exchange(r.choice((f"What is the opposite of {a}?", f"What is the opposite of \"{a}\"?")), f"The opposite of {a} is {b}.", "general")
    if pick == 3:
        a = r.choice(list(LEGS))
        return Exchange(f"How many legs does {a} have?", f"{cap(a)} has {LEGS[a]} legs.", "general")
    if pick == 4:
        names, what = r.choice(((DAYS, "day"), (MONTHS, "month")))
        i = r.randrange(len(names))
        if r.random() < 0.5:
            return Exchange(f"What {what} comes after {names[i]}?", f"{names[(i + 1) % len(names)]} comes after {names[i]}.", "general")
        return Exchange(f"What {what} comes before {names[i]}?", f"{names[i - 1]} comes before {names[i]}.", "general")
    if pick == 5:
        a = r.choice(list(SIDES))
        return Exchange(f"How many sides does {an(a)} have?", f"{cap(an(a))} has {SIDES[a]} sides.", "general")
    if pick == 6:
        a = r.choice(list(SAYS))
        return Exchange(r.choice((f"What does {an(a)} say?", f"What sound does {an(a)} make?")), f"{cap(an(a))} says {SAYS[a]}.", "general")
    if pick == 7:
        a = r.choice(list(YOUNG))
        return Exchange(r.choice((f"What is a young {a} called?", f"What is a baby {a} called?")), f"A young {a} is called {an(YOUNG[a])}.", "general")
    i = r.randrange(13)
    return Exchange(f"How do you write {i} as a word?", f"{i} is written {NUMBERS[i]}.", "general")


def acquaintance(r):
    """Two turns: a name (or more) is told and then asked for."""
    name = cap(invented(r)) if r.random() < 0.25 else r.choice(GIRLS + BOYS)
    animal, colour = r.choice(list(ANIMALS)), r.choice(COLOURS)
    topics = [
        ([f"My name is {name}.", f"I am {name}.", f"Hello, my name is {name}.", f"Hi, I am {name}."], [f"Nice to meet you, {name}!", f"Hello {name}! How can I help you?"],
         [("What is my name?", f"Your name is {name}."), ("Who am I?", f"You are {name}."), ("Do you remember my name?", f"Yes, your name is {name}.")]),
        ([f"My favourite colour is {colour}.", f"I like {colour} best."], [f"{cap(colour)} is a lovely colour."],
         [("What is my favourite colour?", f"Your favourite colour is {colour}."), ("Which colour do I like?", f"Your favourite colour is {colour}.")]),
        ([f"I have {an(animal)}.", f"I have {an(animal)} called {name}."], [f"How nice! I like stories about {an(animal)}."],
         [("What animal do I have?", f"You have {an(animal)}."), ("Which animal do I have?", f"You have {an(animal)}.")]),
    ]
    tell, answer, ask = r.choice(topics)
    question, reply = r.choice(ask)
    return [Exchange(r.choice(tell), r.choice(answer), "talk", weight=0.5), Exchange(question, reply, "talk")]
