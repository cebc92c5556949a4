"""The fixtures of browser.py."""

from browser import browser as browser
from browser import engine as engine
