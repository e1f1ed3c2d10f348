"""The embedded corpus: short children's stories, written for this project and generated from a seed.

Story i is a pure function of (seed, i): choices come from BLAKE2 of both, so the bytes are the same on every
platform and Python. What a story says early (who owns what, where it is hidden, how many there were) is needed
again later, so a model gains from attending to it.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

Option = TypeVar("Option")


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def phrases(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


GIRLS = words(
    "Mia Lily Anna Zoe Nora Ella Ruby Ivy Clara Maya Rosa Tess Hana Lena Alma Dora Edith Freya Greta Hazel Ines Jade "
    "Kira Luna Mabel Nina Olive Petra Rita Sofia Thea Una"
)
BOYS = words(
    "Tom Ben Sam Leo Max Finn Noah Oscar Hugo Jack Theo Otto Amir Emil Ravi Luca Adam Bruno Carl Dan Elias Felix "
    "George Henry Ivan Jonas Kofi Liam Milo Niko Oran Paul"
)
KIN = words("grandmother grandfather aunt uncle teacher neighbour cousin")
COLOURS = words("red blue green yellow purple orange white black silver golden pink brown striped spotted shiny grey")
THINGS = words(
    "key kite ball drum lamp boat bell cup hat coat scarf whistle book map box basket spoon clock puppet ribbon stone "
    "feather mirror flute brush bucket blanket umbrella top wagon ring shovel rope lantern pillow mitten compass "
    "button purse jar candle teapot letter crown robot doll"
)
SPOTS = {
    "under": phrases("bridge|bench|table|bed|stairs|oak|willow|cart|porch"),
    "behind": phrases("mill|barn|shed|fence|bakery|school|well|tower|waterfall|chapel"),
    "inside": phrases("cave|chest|cupboard|stable|attic|cellar|tent|boathouse|hollow log"),
    "beside": phrases("pond|river|gate|statue|fountain|hedge|station|rose bush|campfire"),
    "on top of": phrases("hill|wall|roof|haystack|bookshelf|rock"),
}
PLACES = tuple((preposition, noun) for preposition, nouns in SPOTS.items() for noun in nouns)
SPOT_ADJECTIVES = words("old little tall mossy broken quiet wooden crooked sunny dusty round empty narrow painted")
ANIMALS = words(
    "fox owl rabbit hedgehog duck goat mouse squirrel frog crow badger pony kitten puppy turtle sparrow donkey otter "
    "lamb beetle heron mole hen swan"
)
ANIMAL_NAMES = words(
    "Pip Biscuit Clover Dot Fern Gus Honey Inky Jumble Kip Lolly Moss Nib Oats Pepper Quill Rusty Sprig Tansy Waffle"
)
FOODS = words(
    "bread honey apples cheese carrots plums soup pancakes milk eggs butter pears cherries nuts beans grapes onions "
    "tea cake jam rice corn lemons mushrooms peas pies"
)
KEEPSAKES = words(
    "shells acorns buttons marbles pebbles stickers apples pinecones coins beads walnuts stamps feathers leaves "
    "chestnuts berries"
)
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
NUMBERS = words("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen")
TIMES = phrases(
    "when the bell rings|when the sun goes down|before breakfast|after the rain|when the clock strikes four|"
    "at the end of the week|when the first star is out|after lunch|when the ducks come home|before the market opens"
)
WEATHERS = words("sunny windy rainy foggy snowy cloudy warm cold bright frosty")
JOBS = words("baker farmer miller sailor painter gardener postman tailor shepherd fisherman beekeeper carpenter")
SECRET_ADJECTIVES = words("silver sleepy hidden dancing singing secret frozen lucky brave gentle purple seven")
SECRET_NOUNS = words("acorn moon river lantern otter pancake whale feather thunder garden pickle star")
GAMES = phrases("hide and seek|tag|hopscotch|chess|catch|cards|skipping|pirates|marbles|statues")

OPENINGS = (
    "Once upon a time there was a {child} called {hero}.",
    "On a {weather} {day}, {hero} woke up early.",
    "{hero} was a {child} who lived near {spot3}.",
    "There once was a {child} named {hero}, and {own} best friend was {friend}.",
    "{hero} and {friend} lived in the same village.",
    "It was {day}, and the morning was {weather}.",
    "In a house close to {spot3} lived a {child} named {hero}.",
    "Long ago, in a small village, lived {hero} and {own} {kin}.",
)
# What happens in between and is never asked for: the distance over which a fact has to be remembered.
INTERLUDES = (
    "It was a {weather} day, and the wind smelled of {food3}.",
    "{A_animal3} ran across the road and was gone.",
    "Then {hero} and {friend} played {game} for a while.",
    "They sat down and ate some {food3}.",
    "{Kin_own} was making {food3} in the kitchen.",
    "The {job} waved at them from far away.",
    "{friend} told a joke about {a_animal3}, and {hero} laughed.",
    "Soon the sky was {weather2}, but nobody minded.",
    "{hero} hummed a song and counted the clouds.",
    "The day went by, and there was much to do.",
    "They helped the {job} to carry some {food3}.",
    "{A_thing4} lay in the grass, but it was not theirs.",
    "{She} thought of many other things that day.",
    "{friend} wanted to play {game}, so they did.",
)
ENDINGS = (
    "Then they all went home.",
    "{hero} smiled all the way home.",
    "That night {hero} slept very well.",
    "It had been a good {day}.",
    "And {hero} never forgot that day.",
    "{hero} and {friend} stayed friends for a long, long time.",
    "Everyone was happy in the end.",
    '"What a day!" said {hero}.',
    "The {animal3} had seen it all, and said nothing.",
)

# A plot is a list of steps, a step a choice of sentences. "..." stands for interludes, "/" for a new paragraph.
Step = tuple[str, ...]
INTERLUDE: Step = ("...",)
PARAGRAPH: Step = ("/",)

HIDDEN_THING: tuple[Step, ...] = (
    (
        "{hero} had {a_thing}, and it was {own} greatest treasure.",
        "From {own} {kin}, {hero} got {a_thing}.",
        "{hero} found {a_thing} on the way to school.",
    ),
    (
        "{She} hid the {colour} {thing} {place}.",
        "So that nobody could take it, {she} put the {thing} {place}.",
        '"I will keep it {place}," {she} said, and so {she} did.',
    ),
    INTERLUDE,
    PARAGRAPH,
    (
        "Many days later, {friend} asked to see the {thing}.",
        '"Where is your {colour} {thing}?" asked {friend}.',
        "In the evening {hero} wanted to play with the {thing} again.",
    ),
    (
        "{hero} thought hard. Where had {she} put it?",
        "At first {hero} did not know the answer.",
        "{hero} looked {place2}, but there was nothing.",
    ),
    (
        "Then {she} remembered where the {thing} was: {place}.",
        '"I know!" said {hero}. "It is {place}."',
        "Then it came back to {object}: the {thing} was {place}.",
    ),
    (
        "They ran to {spot}, and there was the {colour} {thing}.",
        "{She} went to {spot} and pulled out the {thing}. It was still {colour}.",
    ),
)
LOST_THING: tuple[Step, ...] = (
    (
        "{hero} had lost {own} {colour} {thing}, and {she} was sad.",
        'One morning the {colour} {thing} was gone. "Who has seen my {thing}?" cried {hero}.',
    ),
    (
        "{She} asked {friend}. {friend} had not seen it.",
        '"I have not seen {a_thing}," said {friend}, "but let us ask the {job}."',
    ),
    (
        'The {job} said, "I only saw {a_thing2} {place2}."',
        "The {job} had found {a_thing2}, but that was not it.",
    ),
    INTERLUDE,
    (
        "Then they met {a_animal} called {pet}.",
        "At last they came to {a_animal}, and its name was {pet}.",
    ),
    (
        '"I saw {a_thing} {place}," said {pet}.',
        '{pet} said, "Look {place}. There is something {colour} there."',
    ),
    PARAGRAPH,
    (
        "So they looked {place}, and there it was: the {colour} {thing}.",
        "They went to {spot}. And what was {place}? It was the {thing} of {hero}!",
    ),
    (
        '"Thank you, {pet}," said {hero} to the {animal}.',
        "{hero} gave the {animal} some {food}, for {pet} had helped {object}.",
    ),
)
OWNERS: tuple[Step, ...] = (
    (
        "{hero} had {a_thing}. {friend} had {a_thing2}. And {third} had {a_thing3}.",
        "{third} owned {a_thing3}, {hero} owned {a_thing}, and {friend} owned {a_thing2}.",
        "There were three friends. {friend} loved {friend_own} {colour2} {thing2}, {hero} loved {own} {colour} "
        "{thing}, and {third} loved {third_own} {colour3} {thing3}.",
    ),
    ("They left their things {place} and went away.", "All three of them played {game} {place}."),
    INTERLUDE,
    (
        "In the evening the {job} came by with {a_thing2}.",
        'The {job} found something. "Whose {colour2} {thing2} is this?" the {job} asked.',
    ),
    (
        '"It is not mine," said {hero}, "mine is {a_bare}."',
        '{third} shook {third_own} head. "I have {a_bare3}," {third_she} said.',
    ),
    ('"The {thing2} belongs to {friend}!"', "They all knew that the {thing2} belonged to {friend}."),
    PARAGRAPH,
    (
        "So {friend} got the {colour2} {thing2} back, {hero} took {own} {thing}, and {third} the {colour3} {thing3}.",
        "{friend} took the {thing2}. The {colour} {thing} went home with {hero}, and the {colour3} one with {third}.",
    ),
)
PROMISE: tuple[Step, ...] = (
    (
        "{friend} was ill and had to stay in bed.",
        "{friend} could not come along that day.",
        "{friend} had a birthday soon.",
    ),
    (
        '"I promise to bring you {a_thing} and some {food}," said {hero}.',
        '{hero} made a promise: "On {day2} I will bring you some {food} and {a_thing}."',
    ),
    ("{friend} was glad. A promise is a promise.", '"Do not forget it," said {friend}.'),
    INTERLUDE,
    (
        "{hero} met {third}, who wanted to play {game}, but {hero} had to go.",
        "At the market they sold {food2} and {food}, and {hero} remembered what to buy.",
    ),
    (
        "{She} bought the {food} first. Then {she} found the {colour} {thing} {place}.",
        "{Own} {kin} gave {object} the {food}, and the {job} gave {object} {a_thing}.",
    ),
    PARAGRAPH,
    (
        "{hero} knocked at the door of {friend}. {She} had kept {own} promise and brought the {food} and the "
        "{colour} {thing}.",
        '"Here is what I promised," said {hero}, "some {food} and {a_thing}."',
    ),
    ('"You kept your word!" said {friend}.', "{friend} was so happy that {friend_she} hugged {hero}."),
)
COUNTING: tuple[Step, ...] = (
    (
        "{hero} had {total} {keepsakes} in {a_thing}.",
        "{hero} had collected {total} {keepsakes}.",
        "In {own} {colour} {thing} {hero} kept {total} {keepsakes}.",
    ),
    (
        "{She} gave {given} of them to {friend}.",
        '"May I have some {keepsakes}?" asked {friend}, and {hero} gave {friend_object} {given}.',
    ),
    (
        "Now {hero} had {left} {keepsakes}, and {friend} had {given}.",
        "{left_Capital} were left for {hero}.",
    ),
    INTERLUDE,
    (
        "{third} came and asked how many {keepsakes} {friend} had. {friend} had {given}.",
        '"How many do you have, {friend}?" asked {third}. "I have {given}," said {friend}.',
    ),
    (
        '"And you, {hero}?" {hero} counted. There were {left}.',
        "{hero} counted {own} {keepsakes} again, and there were {left}.",
    ),
    PARAGRAPH,
    (
        "Together they still had {total} {keepsakes}.",
        "{friend} put {friend_own} {given} back, and then there were {total} again.",
    ),
)
GATE: tuple[Step, ...] = (
    (
        "An old {animal} called {pet} sat {place}.",
        "One day {hero} met a wise {animal}. Its name was {pet}, and it lived {place}.",
    ),
    (
        '"Remember the secret words," said {pet}. "They are {secret}."',
        '{pet} told {object} the secret words. They were "{secret}".',
    ),
    ("{hero} said the words again and again.", '"What a funny secret," said {hero}.', "{hero} thanked the {animal}."),
    INTERLUDE,
    PARAGRAPH,
    (
        "Far away, {hero} and {friend} came to {a_colour} gate.",
        "In the evening they stood before {a_colour} gate {place2}.",
    ),
    (
        'A voice asked, "What are the secret words?"',
        "Nobody could pass without the secret words.",
        '"Say the words," said a voice, "and tell me who gave them to you."',
    ),
    (
        '"{secret_Capital}," said {hero}. "{pet} the {animal} told me."',
        '{friend} did not know them, but {hero} did. "{secret_Capital}!" {she} called.',
    ),
    (
        "The {colour} gate opened, and behind it was {a_thing2}.",
        "The gate opened, and they found {a_thing2} and some {food}.",
    ),
)
ERRAND: tuple[Step, ...] = (
    (
        '"Please bring me {food}, {food2} and {food4}," said the {kin} of {hero}.',
        "{Own} {kin} sent {hero} to the market for {food}, {food2} and {food4}.",
    ),
    ("{hero} took the {colour} {thing} and went.", "{friend} came along with {a_thing}."),
    INTERLUDE,
    (
        'At the market the {job} asked, "What do you need?"',
        "They came to the {job}, who sold everything.",
        "There were so many things at the market that it was hard to remember.",
    ),
    (
        '"{food_Capital}, {food2} and {food4}," said {hero}.',
        "{hero} thought of the words of {own} {kin}: {food}, {food2} and {food4}.",
    ),
    ('"No {food3} today?" asked the {job}. "No," said {hero}.', "The {job} put it all into the {thing}."),
    INTERLUDE,
    PARAGRAPH,
    (
        "At home {own} {kin} looked. {hero} had brought {food}, {food2} and {food4}. Nothing was missing.",
        '{hero} put everything on the table. "{food_Capital}, {food2}, {food4}. Well done!" said {own} {kin}.',
    ),
)
SWAP: tuple[Step, ...] = (
    (
        "{hero} had {a_thing}, and {friend} had {a_thing2}.",
        "{friend} got {a_thing2} for {friend_own} birthday. {hero} got {a_thing}.",
    ),
    (
        '"I like yours better," said {hero}. So they swapped.',
        '"Shall we swap?" asked {friend}. {hero} said yes.',
    ),
    (
        "Now {hero} had the {thing2}, and {friend} had the {thing}.",
        "Now the {colour2} {thing2} belonged to {hero}, and the {colour} {thing} to {friend}.",
    ),
    INTERLUDE,
    (
        '{third} saw them. "Who has the {thing} now?" {third_she} asked. It was {friend}.',
        '"Whose is the {colour2} {thing2}?" asked {third}. "It is mine now," said {hero}.',
    ),
    PARAGRAPH,
    (
        "On {day2} they swapped back. {hero} had {own} {colour} {thing} again, and {friend} the {colour2} {thing2}.",
        "They kept it so. {friend} played with the {thing}, and {hero} with the {thing2}.",
    ),
)
BOXES: tuple[Step, ...] = (
    (
        "There were three boxes {place}. In the {colour} box was {a_bare}, in the {colour2} box {a_bare2}, and in "
        "the {colour3} box {a_bare3}.",
        "{hero} had three boxes. {She} put {a_bare} into the {colour} box, {a_bare2} into the {colour2} box "
        "and {a_bare3} into the {colour3} box.",
    ),
    ("Then {she} closed them all.", "{friend} closed the boxes.", "From outside nobody could see what was in them."),
    INTERLUDE,
    (
        '"I need the {thing2}," said {friend}. "Which box is it in?"',
        '{friend} asked, "Where is the {thing2}?"',
    ),
    ("{hero} opened the {colour2} box, and there it was.", '"In the {colour2} one," said {hero}, and {she} was right.'),
    (
        'Later {third} came for the {thing}. "Look in the {colour} box," said {hero}.',
        "{third} wanted the {thing3}, so {hero} opened the {colour3} box.",
    ),
    PARAGRAPH,
    (
        "In the end the {thing2} went back into the {colour2} box, and {she} put the boxes {place}.",
        "{She} knew them all by heart: {thing} in {colour}, {thing2} in {colour2}, {thing3} in {colour3}.",
    ),
)
MESSAGE: tuple[Step, ...] = (
    (
        '{hero} had a message from the {job} for {friend}: "Come to {spot} {time}."',
        '"Tell {friend} to come to {spot} {time}," said the {job} to {hero}.',
    ),
    ("{hero} ran as fast as {she} could.", '"I will not forget it," said {hero}.', "It was a long way."),
    INTERLUDE,
    (
        'On the way {third} asked, "Where should {friend} go?" "To {spot}," said {hero}.',
        "{She} met {third}, but {she} did not stop.",
        '"And when?" asked {third}. "{time_Capital}," said {hero}.',
    ),
    PARAGRAPH,
    (
        'At last {she} found {friend} {place2}. "The {job} says: come to {spot} {time}."',
        '{friend} was {place2}. "You should come to {spot} {time}," said {hero}. "It is a message from the {job}."',
    ),
    (
        "{time_Capital}, {friend} went to {spot}. The {job} was there with {a_thing}.",
        "So {friend} was at {spot} {time}, and the {job} gave {friend_object} some {food}.",
    ),
)
WAY_BACK: tuple[Step, ...] = (
    (
        "{hero} and {friend} went for a long walk. First they passed {spot}, then {spot2}, and then {spot4}.",
        "The way was long. It led to {spot}, then to {spot2}, and at last to {spot4}.",
    ),
    ("There they found {a_thing}.", "There they met {a_animal} called {pet}.", "There they rested and ate {food}."),
    INTERLUDE,
    ("Then it grew dark. How would they find the way home?", '"Which way did we come?" asked {friend}.'),
    (
        '"Just the other way round," said {hero}. "{spot4_Capital} first, then {spot2}, then {spot}."',
        "{hero} knew it. They left {spot4}, came to {spot2}, and from there to {spot}.",
    ),
    PARAGRAPH,
    (
        "When they saw {spot}, they knew that they were nearly home.",
        "After {spot2} came {spot}, and after {spot} came home.",
    ),
)
PET: tuple[Step, ...] = (
    (
        "{hero} had {a_animal} called {pet}. {friend} had {a_animal2} called {pet2}.",
        "{pet} was {a_animal} and lived with {hero}. {pet2} was {a_animal2} and lived with {friend}.",
    ),
    (
        "{pet} liked {food}, but {pet2} only ate {food2}.",
        "{pet2} loved {food2}. {pet} did not; {pet} loved {food}.",
    ),
    INTERLUDE,
    (
        "One day both of them ran away. {pet} hid {place}, and {pet2} hid {place2}.",
        "In the storm {pet} crept {place}, and {pet2} crept {place2}.",
    ),
    (
        "{hero} put some {food} on the ground and called the {animal}.",
        '"I know what the {animal} likes," said {hero}, and took some {food}.',
    ),
    ("{pet} came out {place_from}.", "Soon {pet} looked out. It had been {place} all the time."),
    PARAGRAPH,
    (
        'Then {friend} called, "{pet2}! Come and eat your {food2}!" And the {animal2} came too.',
        "For the {animal2} they took {food2}, and {pet2} came out as well.",
    ),
    ("{hero} took {pet} home, and {friend} took {pet2}.", "{pet} went home with {hero} and {pet2} with {friend}."),
)
PLOTS = (
    HIDDEN_THING, LOST_THING, OWNERS, PROMISE, COUNTING, GATE, ERRAND, SWAP, BOXES, MESSAGE, WAY_BACK, PET,
)  # fmt: skip


def stories(seed: int, count: int | None = None) -> Iterator[str]:
    """The first `count` stories of a seed, or stories without end."""
    indices = itertools.count() if count is None else range(count)
    return (story(seed, index) for index in indices)


def story(seed: int, index: int) -> str:
    draws = Draws(f"{seed}/{index}")
    scene = drawn_scene(draws)
    interludes = iter(draws.some(INTERLUDES, 6))
    paragraphs: list[list[str]] = [[draws.one(OPENINGS)]]
    for step in draws.one(PLOTS):
        if step is PARAGRAPH:
            paragraphs.append([])
        elif step is INTERLUDE:
            paragraphs[-1].extend(itertools.islice(interludes, 1 + draws.below(3)))
        else:
            paragraphs[-1].append(draws.one(step))
    paragraphs[-1].append(draws.one(ENDINGS))
    return "\n".join(" ".join(paragraph) for paragraph in paragraphs).format_map(scene)


def drawn_scene(draws: Draws) -> dict[str, str]:
    """Every name, thing and place a sentence may ask for."""
    animals = draws.some(ANIMALS, 3)
    scene = drawn_people(draws) | drawn_things(draws) | drawn_places(draws) | drawn_numbers(draws)
    scene |= numbered("food", draws.some(FOODS, 4)) | numbered("animal", animals)
    scene |= numbered("pet", draws.some(ANIMAL_NAMES, 2)) | numbered("day", draws.some(DAYS, 2))
    scene |= numbered("weather", draws.some(WEATHERS, 2))
    scene |= {"job": draws.one(JOBS), "time": draws.one(TIMES), "game": draws.one(GAMES)}
    scene["secret"] = f"{draws.one(SECRET_ADJECTIVES)} {draws.one(SECRET_NOUNS)}"
    scene |= numbered("a_animal", [with_article(animal) for animal in animals])
    scene["A_animal3"] = capital(scene["a_animal3"])
    for key in ("secret", "food", "time", "left", "spot4"):
        scene[f"{key}_Capital"] = capital(scene[key])
    return scene


def drawn_people(draws: Draws) -> dict[str, str]:
    names = draws.some((*GIRLS, *BOYS), 3)
    kin = draws.one(KIN)
    scene = {"kin": kin}
    for role, prefix, name in zip(("hero", "friend", "third"), ("", "friend_", "third_"), names, strict=True):
        she, her, own = ("she", "her", "her") if name in GIRLS else ("he", "him", "his")
        scene |= {role: name, f"{prefix}she": she, f"{prefix}object": her, f"{prefix}own": own}
    scene |= {"She": capital(scene["she"]), "Own": capital(scene["own"]), "Kin_own": capital(f"{scene['own']} {kin}")}
    scene["child"] = "girl" if scene["she"] == "she" else "boy"
    return scene


def drawn_things(draws: Draws) -> dict[str, str]:
    colours, things = draws.some(COLOURS, 4), draws.some(THINGS, 4)
    coloured = [with_article(f"{colour} {thing}") for colour, thing in zip(colours, things, strict=True)]
    scene = numbered("colour", colours) | numbered("thing", things) | numbered("a_thing", coloured)
    scene |= numbered("a_bare", [with_article(thing) for thing in things])
    return scene | {"a_colour": with_article(colours[0]), "A_thing4": capital(coloured[3])}


def drawn_places(draws: Draws) -> dict[str, str]:
    chosen = draws.some(PLACES, 4)
    spots = [f"the {draws.one(SPOT_ADJECTIVES)} {noun}" for _, noun in chosen]
    places = [f"{preposition} {spot}" for (preposition, _), spot in zip(chosen, spots, strict=True)]
    return numbered("spot", spots) | numbered("place", places) | {"place_from": f"from {places[0]}"}


def drawn_numbers(draws: Draws) -> dict[str, str]:
    given, left = 2 + draws.below(5), 2 + draws.below(8)
    return {
        "keepsakes": draws.one(KEEPSAKES),
        "total": NUMBERS[given + left],
        "given": NUMBERS[given],
        "left": NUMBERS[left],
    }


def numbered(key: str, values: Sequence[str]) -> dict[str, str]:
    """key, key2, key3, ..."""
    return {key if index == 0 else f"{key}{index + 1}": value for index, value in enumerate(values)}


def with_article(phrase: str) -> str:
    return f"an {phrase}" if phrase[0] in "aeiou" else f"a {phrase}"


def capital(phrase: str) -> str:
    return phrase[0].upper() + phrase[1:]


class Draws:
    """A stream of choices that depends on its label and on nothing else."""

    def __init__(self, label: str):
        self._numbers = numbers(label)

    def below(self, limit: int) -> int:
        return next(self._numbers) * limit >> 32

    def one(self, options: Sequence[Option]) -> Option:
        return options[self.below(len(options))]

    def some(self, options: Sequence[Option], count: int) -> list[Option]:
        """`count` different options, in drawn order."""
        chosen: dict[int, Option] = {}
        while len(chosen) < count:
            index = self.below(len(options))
            chosen.setdefault(index, options[index])
        return list(chosen.values())


def numbers(label: str) -> Iterator[int]:
    """Uniform 32-bit integers from BLAKE2 of the label and a counter."""
    for block in itertools.count():
        yield from struct.unpack("<16I", hashlib.blake2b(f"{label}/{block}".encode()).digest())
