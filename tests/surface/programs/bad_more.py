"""Every numbered statement here must be an error too."""
from datetime import timedelta
import poimen
from a_shop import charge, shop
from b_release import find_tag, push_tag, release_sync
from d_loop import agent
from poimen import Landed, effects
def found(order: str, cents: int) -> Landed[int]: return Landed(cents)
effects.KEYED()                                              # 1 a key without a life span
effects.PROBE(find_tag)                                      # 2 a probe without a lag
@poimen.tool(effect="READ")
async def t3(x: int) -> int: return x                        # 3 an effect class as text
@poimen.tool(effect=effects.KEYED(timedelta(1), probe=found))
async def t4(order: str, cents: int) -> str: return order    # 4 a keyed probe of another result
@poimen.tool(effect=effects.READ, retries=3)
def t5(x: int) -> int: return x                              # 5 a setting that does not exist
@poimen.tool(effect=effects.READ, undo=find_tag)
def t6(x: int) -> int: return x                              # 6 an undo that is no tool
@poimen.model(effect=effects.PROBE(find_tag, lag=timedelta(1)))
def t7(repo: str) -> str: return repo                        # 7 a model that probes
@poimen.tool(effect=effects.READ, on_indeterminate="ask")
def t8(x: int) -> int: return x                              # 8 a choice that does not exist
@poimen.workflow(budget=3)
async def w9(x: int) -> int: return x                        # 9 a budget that is none
charge.options(keys="x")                                     # 10 an option that does not exist
charge.options(timeout="3")                                  # 11 an option of another type
push_tag.sync("repo", "remote", "tag")                       # 12 too few
push_tag("repo", "remote", tag="tag", sha=1)                 # 13 by keyword, of another type
n14: int = poimen.decide("id", "x")                          # 14 what was decided has its type
n15: int = poimen.run(release_sync("r", "o", "1", "2"))      # 15 the result of a sync workflow
poimen.Verdict.score("good")                                 # 16 a score that is no number
poimen.chrage                                                # 17 a public name misspelt
poimen.Budget(eur=2)                                         # 18 a budget in another currency
poimen.run(charge("tea", 1))                                 # 19 a tool is not a workflow
charge.__wrapped__                                           # 20 there is no door past the gate
async def m(rt: poimen.Runtime, client: poimen.Client) -> None:
    await shop("tea")                                        # 21 a call is not awaitable
    n22: int = await charge("tea", 1)                        # 22 the result of a tool
    (await client.get("x", shop)).result().upper()           # 23 a result that was not awaited
    await client.get("x", charge)                            # 24 a tool is not a workflow here either
    n25: int = await poimen.child(agent("x"))                # 25 the result of a child
    n26: str = await poimen.ask("Go?", bool)                 # 26 the type of an answer
    n27: str = await poimen.ask("Go?", options=[1, 2])       # 27 the type of an option
    await client.resolve("i", "lost", by="me", why="x", expect_lsn=1)  # 28 a resolution that does not exist
    await client.resolve("i", "landed", by="me", why="x")    # 29 without the LSN that was seen
    await poimen.perform("n", charge, effect=effects.READ, args=None)  # 30 a body with parameters
    charge.sync("tea", "1")                                  # 31 the other colour checks too
    print(n22, n25, n26, n27)
