"""Stories with a consistent world, and what can be asked about them.

Two kinds. A *tale* is what the model tells: a hero, a friend, one of a dozen plots made of beats with several wordings each.
A *world* is a small simulation: people walk, take, give and leave things, and the questions ask for the final state. Both
return a Story: the text, facts as (kind, question, answer) with one right answer each, and questions whose answer is not in
the text. Whatever may be asked is told in some stories and left out in others, so that only reading tells the two apart.
"""
from dataclasses import dataclass, field

from words import (ANIMALS, BOYS, COLOURS, DAYS, FEMALE, FOODS, GIRLS, HOUSE, MALE, MEALS, NUMBERS, PEOPLE, ROOMS, SEASONS, SPOTS,
                   SUBJECTS, THINGS, TRAITS, WEATHER, an, invented, listing)

UNKNOWN = "The story does not say."


@dataclass
class Story:
    text: str
    facts: list = field(default_factory=list)
    unknown: list = field(default_factory=list)
    request: str = ""  # what a user would ask for to get this tale


def cap(s):
    return s[0].upper() + s[1:]


def person_name(r, pronoun, taken=(), odd=0.2):
    """odd: the share of names that are made up, for practice in copying."""
    while True:
        name = cap(invented(r)) if r.random() < odd else r.choice(GIRLS if pronoun == "she" else BOYS)
        if name not in taken:
            return name


def pronoun_of(r, kind):
    return "she" if kind in FEMALE else "he" if kind in MALE else r.choice(("he", "she"))


def forms(prefix, pronoun):
    """he/him/his for the hero under short keys, for the friend with a prefix."""
    he, him, his = ("she", "her", "her") if pronoun == "she" else ("he", "him", "his")
    return {prefix + "he": he, prefix + "him": him, prefix + "his": his,
            prefix + "He": cap(he), prefix + "His": cap(his)}


# Details that any tale may tell or keep back: statement, question, answer.
DETAILS = [
    (["{N} was {num} years old.", "{He} was {num} years old."], ["How old was {N}?", "What was {N}'s age?"], "{N} was {num} years old."),
    (["{His} favourite colour was {col3}.", "{N} liked the colour {col3} best."], ["What was {N}'s favourite colour?", "Which colour did {N} like best?"],
     "{N}'s favourite colour was {col3}."),
    (["{He} always wore {a_hat}.", "On {his} head {he} wore {a_hat}."], ["What colour was {N}'s hat?", "What kind of hat did {N} wear?"], "{N}'s hat was {col4}."),
    (["For breakfast {he} had {meal}.", "That morning {he} ate {meal} for breakfast."], ["What did {N} eat for breakfast?", "What did {N} have for breakfast?"],
     "{N} had {meal} for breakfast."),
    (["{His} mother was called {mother}.", "{N} had a mother named {mother}."], ["What was the name of {N}'s mother?", "Who was {N}'s mother?"],
     "{N}'s mother was called {mother}."),
    (["It was {a_weather} {day}.", "One {day}, the weather was {weather}."], ["What was the weather like?", "How was the weather?"], "The weather was {weather}."),
    (["It was a quiet {season} morning.", "It happened in {season}."], ["What season was it?", "In which season did it happen?"], "It was {season}."),
    (["{N} loved {meal2} more than anything.", "{His} favourite food was {meal2}."], ["What was {N}'s favourite food?", "Which food did {N} like best?"],
     "{N}'s favourite food was {meal2}."),
]

INTRO = [
    "Once upon a time there was {a_hero} named {N}. {He} lived {home}.",
    "Once there was {a_hero} called {N}, who lived {home}.",
    "{N} was {a_hero}. {He} lived {home}.",
    "Long ago, {a_hero} named {N} lived {home}.",
    "{Home} lived {a_hero}. {His} name was {N}.",
    "There once was {a_hero} named {N}. {His} home was {home}.",
]
ENDINGS = [
    "{N} felt {feeling}. From that day on, {N} and {F} were the best of friends.",
    "{N} felt {feeling}, and {F} smiled too.",
    "That night {N} fell asleep and felt {feeling}.",
    "{N} went home and felt {feeling}. It had been a wonderful day.",
    "\"Thank you, {F}\", said {N}. {He} felt {feeling}.",
]
FEELINGS = ["happy", "proud", "very happy", "warm and safe", "thankful", "glad", "tired but happy"]
BASIC_FACTS = [
    ("where", ["Where did {N} live?", "Where was {N}'s home?"], "{N} lived {home}."),
    ("what", ["What was {N}?", "Who was {N}?"], "{N} was {a_hero}."),
    ("what", ["What was the {kind}'s name?", "What was the {kind} called?"], "The {kind} was called {N}."),
    ("what", ["How did {N} feel at the end?", "How did {N} feel at the end of the story?"], "{N} felt {feeling}."),
]
FRIEND_FACT = ("what", ["What was {F}?", "Who was {F}?"], "{F} was {a_friend}.")

# name, themes, beats, facts. {o} is a thing of colour {c}; {s1}..{s3} are spots; {F} is the friend.
PLOTS = [
    ("lost", ["a lost {o}", "losing something", "helping a friend"], [
        ["{N} had {a_co} that {he} loved very much.", "{N}'s greatest treasure was {a_co}.", "More than anything, {N} loved {his} {c} {o}."],
        ["One day the {o} was gone.", "One morning {he} could not find the {o}.", "But one evening the {o} was lost."],
        ["{He} looked {s1}, but it was not there. {He} looked {s2}, but it was not there either.",
         "First {he} searched {s1}. Then {he} searched {s2}. There was no {o} anywhere.",
         "{N} looked {s1} and {s2}, but found nothing."],
        ["Then {F}, {a_friend}, came by. \"Why are you sad?\" asked {F}.", "{A_friend} named {F} heard {him} cry and stopped.",
         "Just then {he} met {F}, {a_friend}. \"I will help you\", said {F}."],
        ["Together they searched until {F} found the {o} {s3}.", "They looked everywhere. At last {F} found the {o} {s3}.",
         "{F} had good eyes and soon found the {o} {s3}."],
        ["{N} jumped for joy and hugged {F}.", "\"You found it!\" cried {N}.", "{N} laughed and thanked {F} again and again."]],
     [("what", ["What did {N} lose?", "What was lost?"], "{N} lost the {c} {o}."),
      ("what", ["What colour was the {o}?"], "The {o} was {c}."),
      ("who", ["Who found the {o}?"], "{F} found the {o}."), ("who", ["Who helped {N}?"], "{F} helped {N}."),
      ("where", ["Where was the {o}?", "Where did {F} find the {o}?"], "The {o} was {s3}."),
      ("where", ["Where did {N} look first?"], "{N} looked {s1} first."),
      FRIEND_FACT]),
    ("found", ["honesty", "finding something", "a found {o}"], [
        ["One day {N} went for a walk and saw something {s1}.", "While playing outside, {he} noticed something shiny {s1}.", "On the way to the {room}, {N} stopped. Something lay {s1}."],
        ["It was {a_co}.", "There was {a_co}!", "{He} bent down and picked up {a_co}."],
        ["\"It is so pretty\", thought {N}. \"But it is not mine.\"", "{N} wanted to keep it, but {he} knew that somebody must miss it.", "{He} wondered who had lost it."],
        ["{He} asked everyone, and at last {he} came to {F}, {a_friend}.", "{N} went from door to door until {he} met {F}, {a_friend}.", "Soon {he} met {a_friend} named {F}, who was looking for something."],
        ["\"That is my {o}!\" said {F}.", "{F} cried: \"You found my {o}!\"", "{F}'s eyes grew wide. The {o} belonged to {Fhim}."],
        ["{N} gave the {o} back, and {F} gave {him} {a_food} to say thank you.", "So {N} gave it back. {F} thanked {him} with {a_food}."]],
     [("what", ["What did {N} find?"], "{N} found {a_co}."),
      ("where", ["Where did {N} find the {o}?"], "{N} found the {o} {s1}."), ("where", ["Where was the {o}?"], "The {o} was {s1}."),
      ("who", ["Whose {o} was it?", "Who did the {o} belong to?"], "The {o} belonged to {F}."),
      ("what", ["What did {F} give {N}?"], "{F} gave {N} {a_food}."),
      ("what", ["What colour was the {o}?"], "The {o} was {c}."),
      FRIEND_FACT]),
    ("storm", ["a storm", "a stormy night", "kindness"], [
        ["One night a great storm came. The wind howled and the rain fell.", "One evening dark clouds came, and soon there was thunder and rain.", "One night the wind blew so hard that the windows shook."],
        ["Then {N} heard a knock.", "Suddenly somebody knocked softly.", "In the middle of the storm {he} heard a small voice."],
        ["Outside stood {F}, {a_friend}, wet and cold.", "It was {a_friend} named {F}, shaking in the rain.", "There was {F}, {a_friend}. {FHe} had lost {Fhis} way."],
        ["\"Come in!\" said {N}.", "{N} opened at once and let {Fhim} in.", "\"You must be cold\", said {N}. \"Please come in.\""],
        ["{He} gave {F} {a_cthing_blanket} and some {meal3}.", "{N} wrapped {Fhim} in {a_cthing_blanket} and made {meal3}."],
        ["In the morning the sun came out, and there was a rainbow over the {room}.", "When the storm was over, a rainbow stood over the {room}.", "The next day the sky was blue again, and they walked to the {room} together."]],
     [("who", ["Who came in the storm?"], "{F} came in the storm."), ("who", ["Who was wet and cold?"], "{F} was wet and cold."),
      ("what", ["What did {N} make for {F}?", "What did {F} get to eat?"], "{F} got some {meal3}."),
      ("what", ["What colour was the blanket?"], "The blanket was {c}."),
      FRIEND_FACT]),
    ("build", ["building a {build}", "never giving up", "a {build}"], [
        ["{N} had a big dream: {he} wanted to build {a_build}.", "One day {N} decided to build {a_build}.", "\"I will build {a_build}\", said {N}."],
        ["{He} collected wood {s1} and rope {s2}.", "{He} found some wood {s1} and some rope {s2}.", "{N} carried wood from a place {s1} and got a rope that lay {s2}."],
        ["But the first {build} broke at once.", "The first try was not good. The {build} fell apart.", "{He} worked all day, but in the evening the {build} fell to pieces."],
        ["{F}, {a_friend}, watched and said: \"Try it again. I will hold the rope.\"", "Then {a_friend} named {F} came and said: \"Do not give up. Let us do it together.\"",
         "\"May I help?\" asked {F}, {a_friend}. \"Two can do more than one.\""],
        ["They worked for {num2} days, and the new {build} was strong.", "After {num2} days of work the {build} was ready.", "It took {num2} days, but this time the {build} was perfect."],
        ["They painted it {c}.", "At the end {N} painted it {c}."]],
     [("what", ["What did {N} want to build?"], "{N} wanted to build {a_build}."), ("what", ["What did {N} build?"], "{N} built {a_build}."),
      ("where", ["Where was the wood?"], "The wood was {s1}."),
      ("where", ["Where was the rope?"], "The rope was {s2}."),
      ("who", ["Who helped {N}?"], "{F} helped {N}."),
      ("what", ["How long did it take?", "How many days did they work?"], "It took {num2} days."),
      ("what", ["What colour was the {build}?"], "The {build} was {c}."),
      FRIEND_FACT]),
    ("afraid", ["being brave", "courage", "fear"], [
        ["There was one thing that {N} was afraid of: {fear}.", "{N} was afraid of only one thing, and that was {fear}.", "{N} liked everything, but {he} was afraid of {fear}."],
        ["One day {F}, {a_friend}, was in trouble {s1}.", "Then one evening {F}, {a_friend}, got stuck {s1}.", "One day {he} heard a call for help. {F}, {a_friend}, was stuck {s1}."],
        ["Nobody else was near.", "There was no one else to help.", "{N} looked around, but nobody else was there."],
        ["{N} thought of {fear} and {his} knees shook. But {he} took a deep breath and went.", "{His} heart beat fast, but {he} thought of {F} and ran to help.",
         "\"I am afraid\", whispered {N}, \"but {F} needs me.\""],
        ["Step by step {he} came closer, and then {he} pulled {F} out with {a_rope}.", "{He} used {a_rope} to pull {F} out.", "With {a_rope} {he} got {F} free."],
        ["\"You are very brave\", said {F}.", "{F} said: \"That was the bravest thing I have ever seen.\""]],
     [("what", ["What was {N} afraid of?"], "{N} was afraid of {fear}."),
      ("who", ["Who was in trouble?"], "{F} was in trouble."), ("who", ["Who did {N} help?"], "{N} helped {F}."),
      ("where", ["Where was {F}?", "Where was {F} stuck?"], "{F} was {s1}."),
      ("what", ["What did {N} use?", "What did {N} use to help {F}?"], "{N} used {a_rope}."),
      FRIEND_FACT]),
    ("share", ["sharing", "{foods}", "a hungry friend"], [
        ["One day {N} found {num3} {foods} {s1}.", "{N} went out and found {num3} {foods} {s1}.", "Near home {he} saw {num3} sweet {foods} {s1}."],
        ["\"They are all for me\", {he} thought.", "{He} wanted to eat them all.", "{N} was hungry and wanted to keep every one of them."],
        ["But then {he} saw {F}, {a_friend}, who had nothing to eat.", "Then {F} came along. {F} was {a_friend} and very hungry.", "On the way home {he} met {a_friend} named {F}, who was hungry and sad."],
        ["{N} thought for a moment. Then {he} gave {F} {num4} {foods}.", "\"Here\", said {N}, and gave {Fhim} {num4} {foods}."],
        ["They sat down {s2} and ate together.", "Together they sat {s2} and had a little feast."],
        ["\"Food tastes better with a friend\", said {N}.", "{F} told a joke, and they both laughed until the sun went down."]],
     [("what", ["What did {N} find?", "How many {foods} did {N} find?"], "{N} found {num3} {foods}."),
      ("where", ["Where were the {foods}?", "Where did {N} find the {foods}?"], "The {foods} were {s1}."),
      ("what", ["How many {foods} did {F} get?", "How many {foods} did {N} give {F}?"], "{F} got {num4} {foods}."),
      ("where", ["Where did they eat?", "Where did they sit?"], "They sat {s2}."),
      ("who", ["Who was hungry?"], "{F} was hungry."), ("who", ["Who did {N} share with?"], "{N} shared with {F}."),
      FRIEND_FACT]),
    ("race", ["a race", "a contest", "fair play"], [
        ["Every {season2} there was a big race to the {room}.", "One day there was a race to the {room}.", "All the neighbours met for a race to the {room}."],
        ["{N} wanted to win {a_co}, the prize.", "The prize was {a_co}, and {N} wanted to win it.", "The winner would get {a_co}."],
        ["{F}, {a_friend}, was the fastest of all.", "But {F}, {a_friend}, had won every year."],
        ["They ran side by side. Then {F} fell {s1} and hurt {Fhis} foot.", "Halfway there {F} tripped {s1} and could not go on."],
        ["{N} could have won, but {he} stopped and helped {Fhim} up.", "{N} turned around and gave {F} a hand.", "\"I cannot leave you here\", said {N}, and helped {F}."],
        ["They crossed the line together, and both of them got the prize.", "Arm in arm they reached the {room}, and everybody cheered."]],
     [("where", ["Where did the race go?", "Where did they run to?"], "They ran to the {room}."),
      ("what", ["What was the prize?"], "The prize was {a_co}."),
      ("who", ["Who fell?", "Who hurt {Fhis} foot?"], "{F} fell."),
      ("where", ["Where did {F} fall?"], "{F} fell {s1}."),
      ("who", ["Who helped {F}?", "Who stopped to help?"], "{N} helped {F}."),
      FRIEND_FACT]),
    ("journey", ["a journey", "a long trip", "{goal}", "an adventure"], [
        ["{N} had never seen {goal}.", "All {his} life {N} had dreamed of {goal}.", "{N} had only one wish: to see {goal}."],
        ["So one day {he} packed {a_co} and some {foods} and set out.", "One morning {he} took {a_co} and some {foods} and started to walk."],
        ["On the way {he} met {F}, {a_friend}. \"May I come with you?\" asked {F}.", "After a while {he} met {a_friend} named {F}, who wanted to come along."],
        ["They walked for {num2} days. At night they slept {s1}.", "For {num2} days they walked over hills and through valleys, and they slept {s1}."],
        ["One evening {F} was tired, and {N} sang a song to cheer {Fhim} up.", "When it rained, they sat close together and told each other stories."],
        ["And then, at last, there was {goal}. It was more beautiful than in any dream.", "At last they saw {goal}. They stood still and could not say a word."]],
     [("what", ["What did {N} want to see?"], "{N} wanted to see {goal}."),
      ("who", ["Who came along?", "Who went with {N}?", "Who did {N} meet on the way?"], "{F} came along."),
      ("where", ["Where did they sleep?"], "They slept {s1}."),
      ("what", ["How many days did they walk?", "How long did they walk?"], "They walked for {num2} days."),
      ("what", ["What did {N} pack?", "What did {N} take along?"], "{N} took {a_co} and some {foods}."),
      FRIEND_FACT]),
    ("birthday", ["a birthday", "a surprise", "a party"], [
        ["It was {N}'s birthday, but nobody seemed to know.", "On the morning of {his} birthday {N} woke up early. Nobody said a word about it."],
        ["{He} went to the {room}, but it was empty.", "{N} walked to the {room}, but nobody was there."],
        ["{He} sat down {s1} and was a little sad.", "Sad and alone, {he} sat {s1}."],
        ["Then {F}, {a_friend}, came and said: \"Follow me!\"", "Suddenly {a_friend} named {F} took {him} by the hand."],
        ["They went to a place {s2}, and all the friends jumped up. \"Surprise!\" they shouted.", "{F} led {him} to a table {s2}. \"Happy birthday!\" everybody called."],
        ["There was a cake with {num3} candles, and {F} gave {him} {a_co}.", "{F} had baked a cake with {num3} candles and gave {him} {a_co}."]],
     [("what", ["What did {F} give {N}?"], "{F} gave {N} {a_co}."), ("what", ["What was the present?"], "The present was {a_co}."),
      ("what", ["How many candles were on the cake?"], "There were {num3} candles on the cake."),
      ("where", ["Where did {N} go first?"], "{N} went to the {room} first."),
      ("where", ["Where was the party?"], "The party was {s2}."),
      ("who", ["Who gave {N} a present?"], "{F} gave {N} a present."),
      FRIEND_FACT]),
    ("learn", ["learning something new", "practice", "learning to {skill}"], [
        ["{N} wanted to learn to {skill}, but it was hard.", "More than anything {N} wished to {skill}.", "Everyone in the family could {skill}, only {N} could not."],
        ["The first time {he} tried, everything went wrong.", "{He} tried and tried, but it did not work.", "{He} tried it alone, and it was no good at all."],
        ["So {he} asked {F}, {a_friend}, for help.", "{F}, {a_friend}, saw it and smiled. \"I will teach you\", {Fhe} said."],
        ["They met every {day2} {s1} and practised.", "Every {day2} they practised {s1}."],
        ["After {num2} weeks it was much better.", "{Num2} weeks went by, and {N} got better and better."],
        ["At the big feast in the {room}, {N} showed what {he} had learned, and everybody clapped.", "One evening {he} showed it to everyone in the {room}. They clapped and clapped, and {F} gave {him} {a_co}."]],
     [("what", ["What did {N} want to learn?"], "{N} wanted to learn to {skill}."), ("what", ["What did {N} learn?"], "{N} learned to {skill}."),
      ("who", ["Who taught {N}?"], "{F} taught {N}."), ("who", ["Who helped {N}?"], "{F} helped {N}."),
      ("where", ["Where did they practise?", "Where did they meet?"], "They practised {s1}."),
      ("what", ["On which day did they practise?", "When did they practise?"], "They practised every {day2}."),
      ("what", ["How many weeks did it take?", "How long did it take?"], "It took {num2} weeks."),
      FRIEND_FACT]),
    ("noise", ["a strange noise", "a dark night", "a mystery"], [
        ["One night {N} heard a strange noise.", "In the middle of the night a strange sound woke {N}.", "It was late when {N} heard something outside."],
        ["{He} lit {a_clantern} and went out.", "{He} took {a_clantern} and opened the door.", "With {a_clantern} in {his} hand, {he} stepped into the dark."],
        ["The noise came from a place {s1}.", "Something moved {s1}.", "{He} followed the sound to a place {s1}."],
        ["{N} held up the light, and there was {F}, {a_friend}, caught in a net.", "It was no ghost. It was {F}, {a_friend}, and {Fhe} could not get out of a net."],
        ["Slowly and gently {N} opened the net.", "\"Do not be afraid\", said {N}, and cut the net."],
        ["{F} was free and gave {him} {a_co2} as a present.", "\"You saved me\", said {F}, and gave {him} {a_co2}."]],
     [("who", ["Who was caught in the net?"], "{F} was caught in the net."),
      ("where", ["Where did the noise come from?"], "The noise came from a place {s1}."), ("where", ["Where was {F}?"], "{F} was {s1}."),
      ("what", ["What colour was the lantern?"], "The lantern was {c}."),
      ("what", ["What did {F} give {N}?"], "{F} gave {N} {a_co2}."),
      FRIEND_FACT]),
    ("seed", ["a garden", "a seed", "patience", "a flower"], [
        ["In {season2}, {F}, {a_friend}, gave {N} a tiny seed.", "One day {F}, {a_friend}, gave {him} a little seed."],
        ["{N} planted it {s1} and gave it water every day.", "{He} put the seed into the ground {s1} and watered it every morning."],
        ["A day passed, then a week, but nothing happened.", "Day after day {he} looked, but there was only dark earth."],
        ["\"Be patient\", said {F}. \"Good things need time.\"", "{F} told {him} to wait a little longer."],
        ["After {num2} weeks a green leaf came out, and then a {c} flower opened.", "Then, after {num2} weeks, there was a {c} flower."],
        ["It was so beautiful that everyone from the {room} came to see it.", "Even the people from the {room} came to look at it."]],
     [("who", ["Who gave {N} the seed?", "Who gave {N} a seed?"], "{F} gave {N} the seed."),
      ("where", ["Where did {N} plant the seed?"], "{N} planted the seed {s1}."), ("where", ["Where was the flower?"], "The flower was {s1}."),
      ("what", ["What colour was the flower?"], "The flower was {c}."),
      ("what", ["How long did it take?", "How many weeks did it take?"], "It took {num2} weeks."),
      FRIEND_FACT]),
    ("map", ["a treasure", "a treasure map", "an old map"], [
        ["One day {N} found an old map {s1}.", "While cleaning the house, {he} found an old map. It had lain {s1} for years.", "{N} saw a piece of paper {s1}. It was a map!"],
        ["A big {c} cross was painted on it.", "On the map there was a {c} cross."],
        ["\"A treasure!\" said {F}, {a_friend}, who lived next door. \"Let us look for it.\"", "{He} showed it to {F}, {a_friend}, and together they set out."],
        ["They walked past the {room} and dug {s2}.", "The map led them past the {room} to a place {s2}, and there they dug."],
        ["After {num2} hours they hit something hard. It was an old box.", "They dug for {num2} hours. Then there was an old box."],
        ["Inside there was no gold, only {a_co2} and a letter: \"The best treasure is a good friend.\"", "In the box lay {a_co2} and a letter. It said: \"Share it with a friend.\""]],
     [("what", ["What did {N} find?"], "{N} found an old map."),
      ("where", ["Where was the map?"], "The map was {s1}."),
      ("where", ["Where did they dig?"], "They dug {s2}."),
      ("where", ["Where was the box?"], "The box was {s2}."),
      ("what", ["What colour was the cross?"], "The cross was {c}."),
      ("what", ["What was in the box?"], "There was {a_co2} and a letter in the box."),
      ("what", ["How many hours did they dig?"], "They dug for {num2} hours."),
      ("who", ["Who went with {N}?"], "{F} went with {N}."),
      FRIEND_FACT]),
    ("bake", ["baking a cake", "a cake", "a mistake"], [
        ["{N} wanted to bake a cake for {F}, {a_friend}.", "One {day2}, {N} decided to bake a cake for {F}, {a_friend}."],
        ["{He} took {num3} eggs, some flour and some {foods}.", "{He} needed flour, {num3} eggs and a few {foods}."],
        ["But {he} mixed up the salt and the sugar.", "In a hurry {he} took salt instead of sugar."],
        ["{F} took a bite and made a funny face.", "When {F} tasted it, {Fhis} eyes grew big."],
        ["\"Oh no!\" cried {N}. But {F} laughed and said: \"Let us bake a new one together.\"", "{N} wanted to cry, but {F} said: \"Never mind. We can try again.\""],
        ["The second cake was sweet and good, and they ate it {s1}.", "The new cake was the best in the world. They ate it {s1}."]],
     [("what", ["What did {N} bake?"], "{N} baked a cake."),
      ("who", ["Who was the cake for?"], "The cake was for {F}."),
      ("what", ["How many eggs did {N} take?"], "{N} took {num3} eggs."),
      ("what", ["What did {N} mix up?", "What was the mistake?"], "{N} mixed up the salt and the sugar."),
      ("where", ["Where did they eat the cake?"], "They ate the cake {s1}."),
      FRIEND_FACT]),
    ("neighbour", ["a new friend", "a new neighbour", "friendship", "being alone"], [
        ["{N} had no one to play with and was often alone.", "{N} often sat at the window and wished for a friend."],
        ["One day {a_friend} moved in next door. {FHis} name was {F}.", "Then one {day2} somebody new came: {F}, {a_friend}."],
        ["{N} was too shy to say hello.", "At first {N} did not dare to say a word."],
        ["But then {he} took {a_food} and knocked at the door.", "At last {he} picked {a_food}, went over and knocked."],
        ["\"How kind!\" said {F}. \"I do not know anyone here. Shall we play?\"", "{F} opened the door and smiled. \"I was hoping that somebody would come\", {Fhe} said."],
        ["They played with {a_co} {s1} until it was dark.", "All afternoon they played {s1} with {a_co}."]],
     [("who", ["Who moved in next door?", "Who was the new neighbour?"], "{F} was the new neighbour."),
      ("what", ["What did {N} bring?"], "{N} brought {a_food}."),
      ("where", ["Where did they play?"], "They played {s1}."),
      ("what", ["What did they play with?"], "They played with {a_co}."),
      ("what", ["What colour was the {o}?"], "The {o} was {c}."),
      FRIEND_FACT]),
    ("star", ["a wish", "a falling star", "the night sky"], [
        ["Every night {N} looked up at the stars.", "{N} loved the night sky."],
        ["One night a star fell from the sky and landed {s1}.", "Then, one clear night, a little star fell down {s1}."],
        ["It glowed {c} and was as warm as bread.", "It shone in a soft {c} light."],
        ["\"I can give you one wish\", said the star.", "\"You found me, so you have one wish\", it whispered."],
        ["{N} could have asked for {a_co2}. But {he} thought of {F}, {a_friend}, who was ill.", "{N} thought of {a_co2}, but then {he} remembered {F}, {a_friend}, who lay ill in bed."],
        ["\"Please make {F} well again\", {he} said. The next morning {F} came running, and the star was back in the sky.", "{He} wished that {F} would be well. And so it was."]],
     [("where", ["Where did the star land?", "Where was the star?"], "The star was {s1}."),
      ("what", ["What colour was the star?", "What colour was the light?"], "The star was {c}."),
      ("who", ["Who was ill?"], "{F} was ill."),
      ("what", ["What did {N} wish for?"], "{N} wished that {F} would be well."),
      FRIEND_FACT]),
    ("wayhome", ["getting lost", "the way home", "a dark forest"], [
        ["One day {N} walked too far and did not know the way home.", "On a long walk {N} lost {his} way."],
        ["It grew dark, and {he} sat down {s1}.", "The sun went down. {N} sat {s1} and did not know what to do."],
        ["All {he} had was {a_co} and one {food}.", "In {his} bag there were only {a_co} and one {food}."],
        ["Then {F}, {a_friend}, came along and asked: \"Are you lost?\"", "After a while {a_friend} came by. It was {F}."],
        ["{F} knew the way. They walked past the {room} and over a bridge.", "\"I know your home\", said {F}, and led {him} past the {room}."],
        ["When they arrived, {N} gave {F} the {o} to say thank you.", "At the door {N} gave {F} the {o}."]],
     [("where", ["Where did {N} sit?", "Where did {N} sit down?"], "{N} sat {s1}."),
      ("who", ["Who knew the way?"], "{F} knew the way."), ("who", ["Who helped {N}?"], "{F} helped {N}."),
      ("what", ["What did {N} give {F}?"], "{N} gave {F} the {o}."),
      ("what", ["What colour was the {o}?"], "The {o} was {c}."),
      ("what", ["What did {N} have?"], "{N} had {a_co} and one {food}."),
      FRIEND_FACT]),
    ("trick", ["telling the truth", "a trick", "saying sorry"], [
        ["{N} liked to play tricks on everyone.", "{N} thought that tricks were great fun."],
        ["One day {he} hid the {o} of {F}, {a_friend}, {s1}.", "One {day2} {he} took the {o} of {F}, {a_friend}, and hid it {s1}."],
        ["{F} searched everywhere and began to cry.", "{F} looked for it all day and was very sad."],
        ["\"Have you seen my {o}?\" asked {F}. \"No\", said {N}, but {his} ears turned red.", "\"I do not know where it is\", said {N}. But that was not true."],
        ["At night {N} could not sleep.", "{N} felt bad and could not eat any {foods}."],
        ["In the morning {he} brought the {o} back and said: \"I am sorry.\" {F} forgave {him}.", "So {he} gave it back and told the truth. \"Thank you for being honest\", said {F}."]],
     [("what", ["What did {N} hide?"], "{N} hid the {o}."),
      ("where", ["Where was the {o}?", "Where did {N} hide the {o}?"], "The {o} was {s1}."),
      ("who", ["Whose {o} was it?"], "The {o} belonged to {F}."),
      ("who", ["Who was sad?", "Who was looking for the {o}?"], "{F} was looking for the {o}."),
      FRIEND_FACT]),
]
# What a request may say about the hero: the plot as a clause.
CLAUSES = {
    "lost": ["who lost {his} {o}", "who loses {a_co}", "who cannot find {his} {o}"],
    "found": ["who finds {a_co}", "who found something", "who is honest"],
    "storm": ["who helps somebody in a storm", "in a storm", "who is kind"],
    "build": ["who builds {a_build}", "who wants to build {a_build}", "who never gives up"],
    "afraid": ["who is afraid of {fear}", "who was afraid of {fear}", "who becomes brave"],
    "share": ["who learns to share", "who finds some {foods}", "who shares {his} food"],
    "race": ["who runs a race", "in a race", "who wants to win"],
    "journey": ["who wants to see {goal}", "who goes on a journey", "who travels to {goal}"],
    "birthday": ["who has a birthday", "and a surprise party", "who gets a present"],
    "learn": ["who wants to {skill}", "who learns to {skill}", "who cannot {skill}"],
    "noise": ["who hears a strange noise", "who hears something at night", "who saves somebody"],
    "seed": ["who plants a seed", "who has a garden", "who is patient"],
    "map": ["who finds a treasure", "who finds a map", "who looks for a treasure"],
    "bake": ["who bakes a cake", "who wants to bake", "who makes a mistake"],
    "neighbour": ["who is alone", "who gets a new neighbour", "who finds a friend"],
    "star": ["who makes a wish", "who sees a star", "who has a wish"],
    "wayhome": ["who gets lost", "who is far from home", "who cannot find the way home"],
    "trick": ["who tells a lie", "who plays a trick", "who says sorry"],
}
# Details that a plot tells by itself: neither told twice nor asked as unknown.
CLASHES = {"storm": ("{a_weather}",), "birthday": ("{num}",), "race": ("{season}",), "seed": ("{season}",)}
FEARS = ["the dark", "thunder", "deep water", "high places", "loud noises", "big dogs", "spiders", "the cold river", "the old cellar"]
BUILDS = ["boat", "bridge", "tree house", "kite", "little hut", "wagon", "tower", "raft", "swing", "big nest"]
GOALS = ["the sea", "the snow", "the big city", "the highest mountain", "the end of the rainbow", "the great waterfall", "the desert",
         "the northern lights", "the old lighthouse", "the valley of flowers"]
SKILLS = ["sing", "dance", "swim", "paint", "juggle", "bake bread", "play the flute", "play the drum", "ride a bicycle", "read", "fly a kite",
          "whistle"]
ASKS = ["Tell me a short story about {}.", "Tell me a story about {}.", "Write a short story about {}.", "Write a story about {}.",
        "Can you tell me a story about {}?", "Please tell me a short story about {}.", "I would like to hear a story about {}.",
        "Could you write a little story about {}?", "Make up a story about {}.", "Give me a short story about {}.", "A story about {}, please.",
        "I want a story about {}.", "Tell me a long story about {}.", "Tell me a funny story about {}.", "Write a children's story about {}.", "Tell a story about {}.",
        "Write me a story about {}.", "Can you write a story about {}?", "Tell me a nice story about {}.", "story about {}", "Write a tale about {}.", "Tell me a bedtime story about {}.", "Please write a story about {}.", "Do you know a story about {}?"]
ASKS_ANY = ["Tell me a story.", "Tell me a short story.", "Write a story.", "Please tell me a story.", "Can you tell me a story?", "Make up a story.",
            "I want to hear a story.", "Once upon a time...", "Once upon a time", "Tell me something.", "One more story, please.", "Tell a story.", "Tell me another story.", "Write a short story for children.", "Another story, please."]


def choose_cast(r, odd):
    """The slots every plot may use. Hero and friend are of different kinds and have different names. Now and then the hero is
    of no known kind, so that the model takes the word from the prompt."""
    dice = r.random()
    kind = invented(r) if dice < odd / 4 else r.choice(THINGS) if dice < 0.08 else r.choice(list(SUBJECTS))
    home = r.choice(SUBJECTS.get(kind, HOUSE))
    friend = r.choice([k for k in (ANIMALS if r.random() < 0.6 else PEOPLE) if k != kind])
    pronoun, friend_pronoun = pronoun_of(r, kind), pronoun_of(r, friend)
    name = person_name(r, pronoun, (), odd)
    friend_name = person_name(r, friend_pronoun, (name,), odd / 3)
    traits, colours, spots = r.sample(TRAITS, 2), r.sample(COLOURS, 5), r.sample(SPOTS, 3)
    thing, thing2 = r.sample(THINGS, 2)
    n_food = r.randint(4, 12)
    food = r.choice(list(FOODS))
    trait = traits[0] + " " if r.random() < 0.75 else ""
    weather, day = r.choice(WEATHER), r.choice(DAYS)
    slots = {"N": name, "F": friend_name, "kind": kind, "trait": trait.strip(), "a_hero": an(trait + kind),
             "a_friend": an(traits[1] + " " + friend), "friend": friend, "home": home, "c": colours[0], "o": thing,
             "a_co": an(f"{colours[0]} {thing}"), "o2": thing2, "a_co2": an(f"{colours[1]} {thing2}"), "col3": colours[2], "col4": colours[3],
             "a_hat": an(colours[3] + " hat"), "s1": spots[0], "s2": spots[1], "s3": spots[2], "room": r.choice(ROOMS),
             "a_food": an(food), "food": food, "foods": FOODS[food], "meal": r.choice(MEALS), "meal2": r.choice(MEALS), "meal3": r.choice(MEALS),
             "a_cthing_blanket": an(colours[0] + " blanket"), "a_clantern": an(colours[0] + " lantern"), "mother": r.choice(GIRLS),
             "weather": weather, "a_weather": an(weather), "day": day, "day2": day, "season": r.choice(SEASONS),
             "season2": r.choice(SEASONS), "num": NUMBERS[r.randint(3, 12)], "num2": NUMBERS[r.randint(2, 9)], "num3": NUMBERS[n_food],
             "num4": NUMBERS[r.randint(2, n_food - 1)], "fear": r.choice(FEARS), "build": r.choice(BUILDS), "goal": r.choice(GOALS),
             "skill": r.choice(SKILLS), "feeling": r.choice(FEELINGS), **forms("", pronoun), **forms("F", friend_pronoun)}
    slots.update(Home=cap(home), a_rope=an(colours[1] + " rope"), a_build=an(slots["build"]), A_friend=cap(slots["a_friend"]), Num2=cap(slots["num2"]))
    return slots


def absent_questions(r, slots, text):
    """About people and things that the story never names."""
    out = []
    name = person_name(r, r.choice(("he", "she")), (slots["N"], slots["F"]))
    thing = r.choice([t for t in THINGS if t not in text])
    if name not in text:
        out += [r.choice((f"Where did {name} live?", f"Who was {name}?", f"How did {name} feel at the end?", f"What did {name} find?", f"Where was {name}?"))]
    out += [r.choice((f"What colour was the {thing}?", f"Where was the {thing}?", f"Who found the {thing}?", f"Who had the {thing}?"))]
    return out


def tale(r, told=False):
    """told: the model tells it, so made-up words may come from the request only."""
    named = r.random() < 0.2
    slots = choose_cast(r, 0.3 if not told else 0.35 if named else 0.0)
    plot, themes, beats, facts = r.choice(PLOTS)
    details = [d for d in r.sample(DETAILS, len(DETAILS)) if not any(k in d[0][0] for k in CLASHES.get(plot, ()))]
    told = details[:r.choice((0, 1, 1, 2, 2, 3))]
    opening = [r.choice(INTRO)] + [r.choice(d[0]) for d in told]
    text = " ".join(opening + [r.choice(b) for b in beats]).format(**slots)
    text += r.choice(("\n\n", " ", " ")) + r.choice(ENDINGS).format(**slots)
    if r.random() < 0.5:
        head = " ".join(opening).format(**slots)
        text = head + "\n\n" + text[len(head):].lstrip()
    story = Story(text)
    asked = facts + BASIC_FACTS + [("what", d[1], d[2]) for d in told]
    story.facts = [(kind, r.choice(q).format(**slots), a.format(**slots)) for kind, q, a in asked]
    story.unknown = [r.choice(d[1]).format(**slots) for d in details[len(told):]] + absent_questions(r, slots, text)
    story.request = request(r, slots, plot, themes, named)
    return story


def request(r, slots, plot, themes, named):
    """What a user may have asked for to be told this tale."""
    known = slots["a_hero"] if r.random() < 0.5 else an(slots["kind"])
    dice = r.random()
    if named:
        called = r.choice(("named", "called"))
        topic = r.choice((f"{known} {called} {slots['N']}", f"{known} {called} {slots['N']}", f"{slots['N']} the {slots['kind']}", slots["N"],
                          f"{known} {called} {slots['N']} and {an(slots['friend'])} {called} {slots['F']}", f"{slots['N']} and {slots['F']}"))
    elif dice < 0.12:
        return r.choice(ASKS_ANY)
    elif dice < 0.5:
        topic = known
    elif dice < 0.65:
        topic = f"{known} and {r.choice((an(slots['friend']), slots['a_friend']))}"
    elif dice < 0.78:
        topic = r.choice(themes).format(**slots)
    elif dice < 0.86:
        topic = f"{known} and {r.choice(themes).format(**slots)}"
    else:
        topic = known + " " + r.choice(CLAUSES[plot]).format(**slots)
    return r.choice(ASKS).format(topic)


# --- worlds -----------------------------------------------------------------------------------------------------------

AT = set("market school station harbour playground beach shop museum library bakery castle".split())


def in_place(place):
    return ("at the " if place in AT else "in the ") + place


class World:
    """People and things with places. Every sentence changes the state it describes; the questions read the final state."""

    def __init__(self, r):
        self.r = r
        self.sentences, self.gifts, self.path = [], [], {}
        n = r.choice((2, 2, 3, 3, 4))
        self.gender, names = {}, []
        for _ in range(n):
            pronoun = r.choice(("he", "she"))
            name = person_name(r, pronoun, names)
            names.append(name)
            self.gender[name] = pronoun
        self.people, self.rooms = names, r.sample(ROOMS, r.randint(3, 5))
        self.place = dict.fromkeys(names)
        self.things, self.colour, self.holder, self.thing_place = [], {}, {}, {}
        self.fresh = r.sample(THINGS, 6)
        self.last = None

    def say(self, who, text):
        """Starts with the name, or with he/she when the same person acts again."""
        r = self.r
        same = who == self.last and r.random() < 0.45
        start = (self.gender[who] if same else who)
        lead = r.choice(("Then ", "After that, ", "Later ", "Soon ")) if self.sentences and r.random() < 0.25 else ""
        self.sentences.append((lead + start if lead else cap(start)) + " " + text)
        self.last = who

    def move(self, who):
        place = self.r.choice([p for p in self.rooms if p != self.place[who]])
        self.say(who, self.r.choice(("went to the {}.", "walked to the {}.", "ran to the {}.", "went back to the {}." if place in self.path.get(who, []) else
                                     "travelled to the {}.", "moved to the {}.")).format(place)) if self.place[who] or self.r.random() < 0.6 else \
            self.say(who, f"was {in_place(place)}.")
        self.place[who] = place
        self.path.setdefault(who, []).append(place)

    def name_thing(self, thing):
        """The first time with its colour, if it has one that is told."""
        return f"{self.colour[thing]} {thing}" if thing in self.colour else thing

    def take(self, who):
        r = self.r
        here = [t for t in self.things if self.holder[t] is None and self.thing_place[t] == self.place[who]]
        if here and r.random() < 0.8:
            thing = r.choice(here)
            self.say(who, r.choice(("picked up the {}.", "took the {}.", "grabbed the {}.")).format(thing))
        elif self.fresh and len(self.things) < 4:
            thing = self.fresh.pop()
            self.things.append(thing)
            if r.random() < 0.6:
                self.colour[thing] = r.choice(COLOURS)
            self.say(who, r.choice(("found {} there.", "picked up {}.", "took {} from a shelf.", "got {}.")).format(an(self.name_thing(thing))))
        else:
            return
        self.holder[thing] = who
        self.things.remove(thing)  # in order of the last change of hands
        self.things.append(thing)

    def held(self, who):
        return [t for t in self.things if self.holder[t] == who]

    def drop(self, who):
        thing, place = self.r.choice(self.held(who)), self.place[who]
        self.say(who, self.r.choice(("put the {} down.", "left the {} there.", "put down the {}.", "dropped the {}.", "left the {} " + in_place(place) + "."))
                 .format(thing))
        self.holder[thing], self.thing_place[thing] = None, place

    def give(self, who):
        others = [p for p in self.people if p != who and self.place[p] == self.place[who]]
        if not others:
            return
        other, thing = self.r.choice(others), self.r.choice(self.held(who))
        self.say(who, self.r.choice((f"gave the {thing} to {other}.", f"handed the {thing} to {other}.", f"gave {other} the {thing}.")))
        self.gifts.append((who, thing, other))
        self.holder[thing] = other
        self.things.remove(thing)
        self.things.append(thing)
        self.last = None  # "he" would be unclear now

    def step(self):
        who = self.r.choice(self.people) if self.last is None or self.r.random() < 0.55 else self.last
        dice = self.r.random()
        if self.place[who] is None or dice < 0.35:
            self.move(who)
        elif self.held(who) and dice < 0.55:
            self.give(who)
        elif self.held(who) and dice < 0.72:
            self.drop(who)
        else:
            self.take(who)

    def run(self):
        r = self.r
        n = r.randint(4, 12)
        while len(self.sentences) < n:
            self.step()
        self.asides = {}
        if r.random() < 0.3:
            self.aside()

    def aside(self):
        """Somebody who is only mentioned. First or last, where no he or she can go astray."""
        r = self.r
        kin, pronoun = r.choice((("brother", "he"), ("sister", "she"), ("cousin", "he"), ("neighbour", "she"), ("teacher", "she"), ("friend", "he")))
        name, who = person_name(r, pronoun, self.people), r.choice(self.people)
        self.asides[name] = (kin, who)
        self.sentences.insert(r.choice((0, len(self.sentences))), f"{who}'s {kin} is called {name}.")

    def story(self):
        r = self.r
        self.run()
        story = Story(" ".join(self.sentences))
        text, facts = story.text, story.facts
        for who in self.people:
            if self.place[who]:
                facts.append(("where", r.choice((f"Where is {who}?", f"Where is {who} now?")), f"{who} is {in_place(self.place[who])}."))
                self.path_question(who, facts)
                self.yes_or_no(who, facts)
            elif who in text:
                story.unknown.append(f"Where is {who}?")
            if self.held(who):
                facts.append(("what", f"What does {who} have?", f"{who} has {listing(['the ' + t for t in self.held(who)])}."))
        for thing in self.things:
            owner = self.holder[thing]
            if owner:
                facts.append(("who", r.choice((f"Who has the {thing}?", f"Who has the {thing} now?")), f"{owner} has the {thing}."))
                facts.append(("where", f"Where is the {thing}?", f"{owner} has the {thing}."))
            else:
                facts.append(("where", r.choice((f"Where is the {thing}?", f"Where is the {thing} now?")), f"The {thing} is {in_place(self.thing_place[thing])}."))
            if thing in self.colour:
                facts.append(("what", r.choice((f"What colour is the {thing}?", f"Which colour does the {thing} have?")), f"The {thing} is {self.colour[thing]}."))
            else:
                story.unknown.append(f"What colour is the {thing}?")
        self.gift_questions(facts)
        for name, (kin, who) in self.asides.items():
            facts.append(("who", f"Who is {who}'s {kin}?", f"{who}'s {kin} is {name}."))
            story.unknown.append(f"Where is {name}?")
        self.absent(story)
        return story

    def yes_or_no(self, who, facts):
        asked, there = self.r.choice(self.rooms), self.place[who]
        if self.r.random() < 0.5:
            asked = there
        answer = f"Yes, {who} is {in_place(there)}." if asked == there else f"No, {who} is {in_place(there)}."
        facts.append(("where", f"Is {who} {in_place(asked)}?", answer))
        here = [p for p in self.people if self.place[p] == there]
        if len(here) == 1 and self.r.random() < 0.5:
            facts.append(("who", f"Who is {in_place(there)}?", f"{who} is {in_place(there)}."))

    def path_question(self, who, facts):
        path = self.path[who]
        if len(path) > 1 and path.count(path[-1]) == 1 and self.r.random() < 0.5:
            facts.append(("where", f"Where was {who} before the {path[-1]}?", f"Before the {path[-1]}, {who} was {in_place(path[-2])}."))

    def gift_questions(self, facts):
        for who, thing, other in self.gifts:
            if sum(g[1] == thing and g[2] == other for g in self.gifts) == 1:
                facts.append(("who", f"Who gave the {thing} to {other}?", f"{who} gave the {thing} to {other}."))
            if sum(g[1] == thing and g[0] == who for g in self.gifts) == 1:
                facts.append(("who", f"Who did {who} give the {thing} to?", f"{who} gave the {thing} to {other}."))

    def absent(self, story):
        r = self.r
        name = person_name(r, r.choice(("he", "she")), self.people + list(self.asides))
        thing = r.choice([t for t in THINGS if t not in story.text])
        if name not in story.text:
            story.unknown += [r.choice((f"Where is {name}?", f"What does {name} have?", f"Where is {name} now?"))]
        story.unknown += [r.choice((f"Where is the {thing}?", f"Who has the {thing}?", f"What colour is the {thing}?")),
                          r.choice(("How old is {}?", "What is {}'s favourite colour?", "What did {} eat for breakfast?", "What is the name of {}'s mother?"))
                          .format(r.choice(self.people))]


def world(r):
    return World(r).story()


PUT = ["on the table", "under the bed", "in the box", "on the shelf", "behind the door", "in the drawer", "under the chair", "on the roof", "next to the window", "in the bag"]


def scene(r):
    """A few plain statements in the present: who is where, who has what, what is which colour."""
    story, parts = Story(""), []
    people, things = [], r.sample(THINGS, 6)
    rooms = r.sample(ROOMS, 5)
    for _ in range(r.randint(1, 5)):
        dice = r.random()
        if dice < 0.3:
            name, place = person_name(r, r.choice(("he", "she")), people), rooms.pop()
            people.append(name)
            parts.append(f"{name} is {in_place(place)}.")
            story.facts += [("where", f"Where is {name}?", f"{name} is {in_place(place)}."), ("who", f"Who is {in_place(place)}?", f"{name} is {in_place(place)}.")]
            continue
        thing, colour = things.pop(), r.choice(COLOURS)
        told = r.random() < 0.5
        named = f"{colour} {thing}" if told else thing
        if dice < 0.55:
            where = in_place(rooms.pop()) if r.random() < 0.5 else r.choice(PUT)
            parts.append(r.choice((f"The {named} is {where}.", f"There is {an(named)} {where}.", f"{cap(an(named))} lies {where}.")))
            story.facts.append(("where", r.choice((f"Where is the {thing}?", f"Where can I find the {thing}?")), f"The {thing} is {where}."))
        else:
            name = person_name(r, r.choice(("he", "she")), people)
            people.append(name)
            if r.random() < 0.6:
                parts.append(r.choice((f"{name} has {an(named)}.", f"{name} holds {an(named)}.", f"{name} has the {named}.")))
                story.facts += [("what", f"What does {name} have?", f"{name} has the {thing}.")]
                owner = name
            else:
                owner = person_name(r, r.choice(("he", "she")), people)
                people.append(owner)
                parts.append(r.choice((f"{name} gave the {named} to {owner}.", f"{name} gave {owner} the {named}.")))
                story.facts += [("who", f"Who gave the {thing} to {owner}?", f"{name} gave the {thing} to {owner}."),
                                ("who", f"Who did {name} give the {thing} to?", f"{name} gave the {thing} to {owner}.")]
            story.facts.append(("who", f"Who has the {thing}?", f"{owner} has the {thing}."))
            story.unknown.append(f"Where is {owner}?")
        if told:
            story.facts.append(("what", f"What colour is the {thing}?", f"The {thing} is {colour}."))
        else:
            story.unknown.append(f"What colour is the {thing}?")
    story.text = " ".join(parts)
    story.unknown += [f"Where is the {things[-1]}?", f"Where is {person_name(r, 'he', people)}?", f"Who has the {things[-1]}?"]
    return story
