"""Text that is elsewhere: addresses on the web and on the Hugging Face Hub, stored in a cache before they are read."""
