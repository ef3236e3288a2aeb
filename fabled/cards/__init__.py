"""Cards: what a thread was about, in short. Derived from it, or written by a model on request.

`extractive` makes one without any model; `provider` asks a program or an endpoint; `schema`
says what a card is to a model; `shelf` keeps the cards that cannot be derived again.
"""
