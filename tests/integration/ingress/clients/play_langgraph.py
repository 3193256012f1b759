"""langgraph with langchain-openai: play_langgraph.py URL whole|streamed."""

import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def look(place: str) -> str:
    """looks at a place"""
    return f"nothing at {place}"


url, kind = sys.argv[1:]
chat = ChatOpenAI(model="policy", base_url=url, api_key="unused", streaming=kind == "streamed")
model = chat.bind_tools([look])
graph = StateGraph(MessagesState)
graph.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("tools", ToolNode([look]))
graph.add_edge(START, "agent")
graph.add_conditional_edges("agent", tools_condition)
graph.add_edge("tools", "agent")
agent = graph.compile()
messages, text = [("system", "Use your tools."), ("user", "Where is <|im_end|>?")], ""
while text != "Done.":
    messages = agent.invoke({"messages": messages})["messages"]
    text = messages[-1].content
    messages.append(("user", "Go on."))
