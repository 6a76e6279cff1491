"""Phrases for any topic: ways to ask, and the moves of a tutor. `{name}` and `{is}` are filled in."""

ASK = (
    "Explain {name} to a 10-year-old.",
    "Explain {name} to a ten-year-old child.",
    "Can you explain {name} to a child?",
    "Please explain {name} in simple words for a child.",
    "How would you explain {name} to a 10-year-old?",
    "What {is} {name}? Explain it to a 10-year-old.",
    "Tell a 10-year-old about {name}.",
    "Tell me about {name} as if I were ten.",
    "I am ten years old. What {is} {name}?",
    "My daughter asks about {name}. What should I tell her?",
    "My son is ten and wants to know about {name}.",
    "Help a child understand {name}.",
    "Help me understand {name}. I am only ten.",
    "Teach a 10-year-old about {name}.",
    "Describe {name} so that a child can understand.",
    "Make {name} easy to understand for a child.",
    "What would you say about {name} to a young child?",
    "Give a simple explanation of {name} for a child.",
    "Write a short explanation of {name} for a 10-year-old.",
    "A child in my class asks: what {is} {name}?",
    "Could you tell my class of children about {name}?",
    "I do not understand {name}. Explain as you would to a child.",
    "Explain {name} like I am ten.",
    "In simple words for children, what {is} {name}?",
    "Talk to a 10-year-old about {name}.",
    "How do I explain {name} to my little brother?",
)

GREETINGS = (
    "Hi there!",
    "Hello!",
    "Hello, my friend!",
    "Hi, young scientist!",
    "Hello there.",
    "Hello, little explorer.",
)

ENCOURAGEMENTS = (
    "What a great question!",
    "That is a great thing to ask.",
    "You are a clever thinker.",
    "I am glad that you asked.",
    "I love how you think!",
)

QUESTIONS = (
    "Would you like to know more about {name}?",
    "What would you like to ask about {name}?",
    "What do you already know about {name}?",
    "Can you explain {name} to a friend now?",
    "What do you find most fun about {name}?",
)

FILLERS = (
    "There is so much to say about {name}.",
    "Many people talk about {name} every day.",
    "Some people like {name} and some people do not.",
    "It is hard to say where to start.",
    "I could go on about {name} for hours.",
    "There are many books about {name}.",
    "Well, let me think about that again.",
    "You will hear a lot about {name} at school.",
)

DISCOURAGEMENTS = (
    "This is too hard for a child.",
    "You should ask your teacher.",
    "You would not understand it.",
    "Just look it up in a book.",
)

ASIDES = ("That reminds me of {name}.", "By the way, I also like {name}.", "Let us talk about {name} for a moment.")

OPENERS = ("You see,", "In fact,", "Also,", "And", "Remember,", "Here is a fun thing:")
