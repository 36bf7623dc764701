"""The vocabulary of the corpus: who, what and where. Lists only; the generators are in stories.py and tasks.py."""


def w(text):
    return text.split()


def unique(text):
    return list(dict.fromkeys(text.split()))


GIRLS = unique("""Mara Lena Ada Mia Nora Ella Ruby Rose Lily Anna Clara Emma Sara Tina Vera Zoe Ivy Kate Lucy Maya Nina Olga Pia Rita
Stella Tess Una Wanda Yara Bella Daisy Eva Fay Gina Hana Ines Jade Kira Luna Molly Alice Mary Sophie Julia Laura Helen Susan Linda Jane Amy Betty Carol Diana Elena Frida Grace Heidi Iris
Jenny Karen Lisa Maria Nadia Paula Rachel Sally Tara Ursula Violet Wendy Amina Aisha Chloe Dora Edith Flora Greta Hazel Isabel Joan
Lotte Mabel Nelly Olive Penny Rosa Selma Thea Vicky Zara Sofia Lara Ingrid Astrid Leila Mei Priya Yuki""")
BOYS = unique("""Tom Ben Sam Leo Max Finn Hugo Ivan Jack Karl Liam Milo Noah Otto Paul Remy Theo Victor Will Adam Bruno Carlo David Emil
Felix Gus Henry Igor Jonas Kai Luis Marco Nico Oscar Pete Ravi Simon Tim Yusuf Zack Bob Charlie Peter John James Michael Robert William George Thomas Daniel Andrew Mark Luke Matthew Alex
Ali Anton Arthur Ben Billy Chris Dan Eddie Eric Frank Fred Gabriel Harry Isaac Jacob Jim Joe Jonathan Julian Kevin Larry Lars Martin Max
Mike Nick Oliver Oskar Patrick Philip Ralph Richard Rob Roger Ron Stefan Steve Ted Tony Walter Omar Hassan Ken Hiro Wei Mateo Diego""")

# animal: where it lives
FOREST = ["in a den under an old oak", "in a hollow tree", "in a cosy den in the forest", "in the quiet green forest", "in a little house in the woods"]
FARM = ["on a small farm", "in an old red barn", "on a farm by the hill", "in a warm barn behind the mill", "on a green field near the village"]
WATER = ["in a clear blue pond", "by a wide slow river", "on a quiet lake", "by the warm blue sea", "in a little bay by the beach"]
HOUSE = ["in a small house at the edge of the village", "in a yellow house by the river", "in a tall house in the town", "in a cottage on the hill",
         "in a white house near the sea"]
WILD = ["on a wide sunny plain", "in a cave in the mountains", "in a deep green jungle", "on a rocky hill", "in a valley full of flowers"]
CASTLE = ["in a castle on a hill", "in a tall stone tower", "in a palace with a hundred rooms", "in a castle by the sea",
          "in a tower at the edge of the forest"]
MYTH = ["in a cave in the mountains", "in a castle on a hill", "in a misty valley", "in a deep dark forest", "on an island far away"]
SKY = ["in the wide night sky", "high above the clouds", "on a small round moon", "on the far side of the moon"]
ANIMALS = {
    **dict.fromkeys(w("fox rabbit squirrel owl bear deer hedgehog badger wolf mole robin raccoon bat beetle snail crow moose lynx weasel moth magpie sparrow"), FOREST),
    **dict.fromkeys(w("hen cow pig goat sheep horse donkey rooster goose lamb pony calf foal"), FARM),
    **dict.fromkeys(w("frog duck fish otter beaver swan turtle crab whale dolphin seal penguin octopus starfish heron shark goldfish squid shrimp"), WATER),
    **dict.fromkeys(w("cat dog mouse kitten puppy parrot hamster bee ant spider butterfly canary ladybug"), HOUSE),
    **dict.fromkeys(w("lion tiger elephant monkey giraffe zebra camel panda koala eagle snake lizard hippo kangaroo leopard cheetah gorilla rhino crocodile ostrich sloth llama ape"), WILD),
}
PEOPLE = {
    **dict.fromkeys(w("girl boy child baker farmer tailor painter teacher gardener miller shepherd singer cook doctor clockmaker "
                      "carpenter potter postman student nurse writer musician librarian shoemaker"), HOUSE),
    **dict.fromkeys(w("fisherman sailor pirate captain mermaid diver"), WATER),
    **dict.fromkeys(w("king queen prince princess knight wizard witch fairy giant elf dwarf"), CASTLE),
}
FANTASY = {
    **dict.fromkeys(w("dragon unicorn troll ghost monster phoenix"), MYTH),
    **dict.fromkeys(w("robot snowman scarecrow puppet toy doll teapot kite train boat car clock lantern candle spaceship rocket bus tree chair shoe pencil"), HOUSE),
    **dict.fromkeys(w("cloud star astronaut alien comet moonbeam planet raindrop snowflake"), SKY),
}
SUBJECTS = {**ANIMALS, **PEOPLE, **FANTASY}
FEMALE = set(w("girl queen princess witch mermaid hen cow fairy doll nurse"))
MALE = set(w("boy fisherman king prince wizard rooster postman snowman"))

TRAITS = w("""small brave kind shy clever curious gentle happy lonely merry quiet proud young old lazy busy friendly hungry sleepy
cheerful careful funny patient stubborn tiny playful polite silly wise""")
COLOURS = w("red blue green yellow white black brown orange purple pink grey golden silver")
THINGS = w("""ball key hat book kite lamp cup box bell ring coin scarf drum flute basket boat shell feather button spoon whistle
umbrella ribbon stone mirror pencil map bag bottle clock candle doll jar brush blanket necklace marble bowl letter glove lantern
crown flag ladder bucket""")
SMALL = w("coin ring key shell feather button marble whistle bell ribbon spoon pencil stone")
FOODS = {  # one, many
    "apple": "apples", "pear": "pears", "plum": "plums", "nut": "nuts", "berry": "berries", "cherry": "cherries", "carrot": "carrots",
    "cookie": "cookies", "cake": "cakes", "egg": "eggs", "orange": "oranges", "lemon": "lemons", "peach": "peaches", "bun": "buns",
    "grape": "grapes", "potato": "potatoes", "mushroom": "mushrooms", "tomato": "tomatoes"}
GOODS = {**FOODS, "book": "books", "pencil": "pencils", "marble": "marbles", "stone": "stones", "shell": "shells", "stamp": "stamps",
         "coin": "coins", "flower": "flowers", "button": "buttons", "balloon": "balloons", "card": "cards", "sticker": "stickers",
         "toy": "toys", "ball": "balls", "feather": "feathers", "bead": "beads", "candle": "candles", "leaf": "leaves"}
MEALS = ["porridge", "bread and honey", "soup", "pancakes", "toast and jam", "rice", "noodles", "cheese and bread", "fruit salad",
         "fried eggs"]
ROOMS = w("kitchen garden bedroom bathroom hall attic cellar office garage library school market park forest beach barn bakery "
          "station museum harbour castle church shop stable playground field tower workshop")
SPOTS = ["under the big oak", "behind the barn", "near the old mill", "on top of the hill", "beside the river", "inside a hollow log",
         "under a pile of leaves", "by the garden gate", "on the bridge", "behind the school", "next to the well", "in the tall grass",
         "under the kitchen table", "between two grey rocks", "at the edge of the pond"]
WEATHER = ["sunny", "rainy", "windy", "foggy", "snowy", "cloudy", "stormy", "warm", "cold"]
DAYS = w("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = w("January February March April May June July August September October November December")
SEASONS = w("spring summer autumn winter")
NUMBERS = w("zero one two three four five six seven eight nine ten eleven twelve")

SHAPES = w("circle square triangle star heart oval rectangle diamond cross arrow hexagon cube cone ring moon")
SIDES = {"triangle": 3, "square": 4, "rectangle": 4, "pentagon": 5, "hexagon": 6, "octagon": 8}

OTHER_NOUNS = w("""fig banana mango melon bread cheese onion pepper bean corn salt flour pizza pasta olive kiwi lime date arm army aunt autumn baby back bank bark bath beach bed bench bird blood board body bone boot bottom branch bread breath
breeze brick bridge brother bush butter cabin camp cap care carpet cart chair chalk chance cheese chest chicken city class cloth coal coast
coat colour comb copper corn corner cotton cousin cream crowd curtain dance daughter day desk dinner dish door dream dress dust ear earth
edge end engine evening eye face fact family farm father fence finger fire floor flour fog foot forest fork friend frost fruit game garden
gate gift glass gold grain grass ground group hair hand harbour head heart hill hole holiday home honey hook hope hour house ice idea
ink iron island jacket jam jelly jewel job joke journey judge juice jump kettle kitchen knee knife knot lake land language laugh law
leather leg lesson light line lip lock log lunch machine mail market mask meal meat memory metal milk mill minute mist money month moon
morning moss mother mountain mouth mud music nail name neck needle nest net night noise north nose number oak ocean oil onion oven
page paint palace paper parent park part party path peace pebble pepper person picture pillow pin pipe place plan plane plant plate pocket
poem point pool pot powder price prize puddle question quilt race rain rainbow reed rice river road rock roof room root rope rug
sail salad salt sand school sea seat secret seed shade shadow shelf ship shirt shoe shop shoulder side silk sister skin skirt sky sleep smile
smoke snow soap sock soil son song sound soup space speech spring square stable stage stair stamp station steam stick stocking
storm story straw stream street string sugar summer sun surprise table tail tale tea teeth tent thread throat thumb thunder ticket
tide time tongue tool tooth top town trade tree trip truth uncle valley vase village voice wagon walk wall water wave week well wheat
wheel wind window wing winter wire wood wool word work world worm yard year""")
VERBS = w("""add agree answer ask bake begin believe bite blow borrow break bring build burn buy call carry catch change choose clap clean
climb close collect come cook count cover crawl cry cut dig draw drink drive drop eat enter fall feed feel fight fill find fix fly
fold follow forget freeze give go greet grow guess hang hear help hide hit hold hop hug hurry invite join keep kick kiss knock know
lead learn leave lend lift like listen live look lose love make march meet melt mix move nod open paint pick plant play point pour
pull push put rain reach read rest ride ring roll run sail save say see sell send sew shake share shine shout show shut sing sit sleep
slide smell sneeze speak spell spend spin stand start stay steal stop sweep swim take talk teach tell thank think throw touch travel
try turn use visit wait wake walk want wash watch wave wear whisper win wish work write yawn""")
ADJECTIVES = w("""bad big bitter blind bold bright broken calm cheap clean clear cold cool dark dear deep dry dull early easy empty equal
fair famous fast fat few fine flat free fresh full glad good great hard heavy high hot huge ill kind large late light little long loose
lost loud low lucky mad narrow near neat new nice noisy odd open pale perfect plain poor pretty quick rare raw ready real rich right
ripe rough round rude sad safe salty same sharp short sick simple slow smooth soft solid sore sour special square steep sticky still
straight strange strong sweet swift tall tame thick thin tired tough true ugly warm weak wet whole wide wild wooden wrong""")
SMALL_WORDS = w("""the a and to of in is it that he was for on are with as his they at be this from or had by but some what there we can out
other were all your when up use how said each she which do their if will way about many then them would so these her has him more could
no my than first been who its now people made over did down only little very after just where most through before too any new our""")

SORTABLE = sorted(set(w for w in list(ANIMALS) + list(PEOPLE) + list(FANTASY) + THINGS + list(GOODS) + OTHER_NOUNS + COLOURS + SHAPES
                      if w.islower()))
PLAIN_WORDS = sorted(set(SORTABLE + VERBS + ADJECTIVES + TRAITS + SMALL_WORDS + ROOMS))

STARTS = w("b br c cl d dr f fl g gr h j k kl l m n p pr qu r s sh sk sn st t tr v w y z")
MIDDLES = w("a e i o u ai ee oo ou")
ENDS = w("b ck d f g l m n nd p r rt s sh t x z lo ma ni ra ro ti va bo ka")


def invented(r):
    """A word nobody has seen, so that the model learns to copy letters rather than to expect known names."""
    return "".join(r.choice(STARTS) + r.choice(MIDDLES) for _ in range(r.choice((1, 1, 2)))) + r.choice(ENDS)


def an(phrase):
    return ("an " if phrase[0].lower() in "aeiou" and not phrase.startswith(("uni", "one", "use")) else "a ") + phrase


def listing(items, last="and"):
    """a, b and c"""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" {last} " + items[-1]
