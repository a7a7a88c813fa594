"""What a policy sees, tries and decides: the view, the draft, its steps, the reasons."""
